"""Edits of JavaScript, JSON, TOML and Markdown, made by code, and edits of single lines in any of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random

import tomllib
from tree_sitter import Node, Parser

from bench.default_model import words
from bench.default_model.words import OPERATORS, WORDS, Edit, Names, NoOccasion, need, pick, say
from specedit.editing.languages import first_error, grammar_of

Make = Callable[[str, Random, Names], Edit]  # raises NoOccasion where a file gives none
KINDS: dict[str, dict[str, Make]] = {}


def kind(name: str, *languages: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        for language in languages:
            KINDS.setdefault(language, {})[name] = make
        return make

    return register


# Lines of any language


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _lone_lines(text: str, but: str = "$^") -> list[int]:
    """The indices of the lines that can be named by what they hold, without those that match `but`."""
    lines = text.splitlines()
    bare = [line.strip() for line in lines]
    named = [n for n, line in enumerate(bare) if re.search(r"\w{3}", line) and "`" not in line]
    return [
        n for n in named if len(bare[n]) < 90 and bare.count(bare[n]) == 1 and not re.search(but, lines[n])
    ]


def _keys(key: str, text: str, old: str) -> list[str]:
    """The phrases that name a line by what it holds: more of them if that stands nowhere else."""
    return [key, f"{key}, its text stands once"] if text.count(old) == 1 else [key]


def _like(text: str, line: str, rng: Random, names: Names) -> str:
    """The line with another word in it."""
    found = [m for m in re.finditer(r"[A-Za-z_]\w{2,}", line) if m[0] not in WORDS["keywords"]]
    word = pick(rng, found)
    return line[: word.start()] + names.instead_of(word[0], rng, text) + line[word.end() :]


@kind("change line", "python", "javascript", "json", "toml", "markdown")
def change_line(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    number = pick(rng, _lone_lines(text))
    old = lines[number].strip()
    new = _like(text, old, rng, names)
    lines[number] = lines[number].replace(old, new)
    return say(rng, *_keys("change line", text, old), old=old, new=new), "".join(lines)


@kind("insert line", "python", "javascript", "toml", "markdown")
def insert_line(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    lone = _lone_lines(text, but=r"[:{(\[,\\]\s*$|^\s*@")
    number = pick(rng, lone)
    old = lines[number].strip()
    new = _like(text, lines[rng.choice(lone)].strip(), rng, names)
    side, at = ("before", number) if rng.random() < 0.4 else ("after", number + 1)
    instruction = say(rng, *_keys(f"insert line {side}", text, old), old=old, new=new)
    return instruction, words.insert(lines, at, _indent(lines[number]) + new)


@kind("delete line", "python", "javascript", "json", "toml", "markdown")
def delete_line(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    need(len(lines) >= 4)
    number = pick(rng, _lone_lines(text, but=r"[:{(\[\\]\s*$|^\s*(@|def |class |return|else|elif)"))
    old = lines[number].strip()
    return say(rng, *_keys("delete line", text, old), old=old), words.drop(lines, number, number + 1)


# JavaScript


def _nodes(node: Node, *types: str) -> list[Node]:
    found = [node] if node.type in types else []
    for child in node.children:
        found += _nodes(child, *types)
    return found


def _parse(text: str, *types: str) -> list[Node]:
    """The nodes of these types in a JavaScript file."""
    return _nodes(Parser(grammar_of("javascript")).parse(text.encode()).root_node, *types)


def _code(node: Node) -> str:
    return node.text.decode()


def _bindings(text: str) -> list[str]:
    """The names that the file binds, each as often as it does."""
    named = _parse(text, "function_declaration", "function_expression", "class_declaration", "class")
    places = [node.child_by_field_name("name") for node in [*named, *_parse(text, "variable_declarator")]]
    places += [
        node.child_by_field_name("parameter") for node in _parse(text, "arrow_function", "catch_clause")
    ]
    places += _parse(text, "formal_parameters", "import_clause")
    return [_code(n) for place in places if place for n in _nodes(place, "identifier")]


@kind("rename function", "javascript")
def rename_function(text: str, rng: Random, names: Names) -> Edit:
    return _rename(text, rng, names, "function", "function_declaration")


@kind("rename variable", "javascript")
def rename_variable(text: str, rng: Random, names: Names) -> Edit:
    return _rename(text, rng, names, "variable", "variable_declarator")


def _rename(text: str, rng: Random, names: Names, what: str, declaration: str) -> Edit:
    declared = [node.child_by_field_name("name") for node in _parse(text, declaration)]
    old = pick(rng, [_code(n) for n in declared if n and n.type == "identifier" and len(n.text) > 1])
    uses = [n for n in _parse(text, "identifier") if _code(n) == old]
    # Else another variable has the name, or it stands in a string, a comment, an object or as a property.
    need(_bindings(text).count(old) == 1 and len(uses) == words.count(text, old))
    new = names.camel_case(old, rng, text)
    return words.rename(text, rng, what, old, new, [(n.start_byte, n.end_byte) for n in uses])


@kind("string", "javascript", "json", "toml")
def string(text: str, rng: Random, names: Names) -> Edit:
    found = re.finditer(r"(?<!\w)([\"'])[A-Za-z][^\"'\\\n]{2,50}\1(?!\w|:)", text)
    match = pick(rng, [m for m in found if text.count(m[0]) == 1])
    new = match[1] + rng.choice(names.strings) + match[1]
    after = text[: match.start()] + new + text[match.end() :]
    return say(rng, "change value", old=match[0], new=new), after


@kind("constant", "javascript", "json", "toml")
def constant(text: str, rng: Random, names: Names) -> Edit:
    found = re.finditer(r"(?P<name>[A-Za-z_][\w.-]*)\"?\s*[=:]\s*(?P<value>\d+(\.\d+)?)(?=[,;\s])", text)
    once = [m for m in found if len(re.findall(rf"\b{re.escape(m['name'])}\"?\s*[=:](?!=)", text)) == 1]
    match = pick(rng, [m for m in once if not re.search(r"\?[^\n]*$", text[: m.start()])])  # a ? b : 1
    near = [int(float(match["value"])) + 1, rng.randint(2, 5000), rng.choice([10, 30, 60, 100, 1000])]
    new = str(rng.choice(near))
    after = text[: match.start("value")] + new + text[match.end("value") :]
    return say(rng, "set", name=match["name"], old=match["value"], new=new), after


@kind("operator", "javascript")
def operator(text: str, rng: Random, names: Names) -> Edit:
    found = []
    for node in _parse(text, "binary_expression"):
        sign = node.child_by_field_name("operator")
        if _code(sign) in OPERATORS["javascript"] and text.count(_code(node)) == 1:
            found.append((node, sign))
    node, sign = pick(rng, [(n, s) for n, s in found if "\n" not in _code(n) and len(n.text) < 70])
    whole, old = _code(node), _code(sign)
    new = rng.choice(OPERATORS["javascript"][old])
    changed = words.splice(whole, (sign.start_byte - node.start_byte, sign.end_byte - node.start_byte, new))
    keys = ["operator", *(["operator, one in the expression"] if whole.count(old) == 1 else [])]
    instruction = say(rng, *keys, whole=whole, changed=changed, new=new, old=old)
    return instruction, words.splice(text, (sign.start_byte, sign.end_byte, new))


def _functions(text: str) -> list[tuple[Node, str]]:
    """Functions and methods with a body on lines of its own and a name that says which is meant."""
    nodes = _parse(text, "function_declaration", "method_definition")
    found = [(node, _code(node.child_by_field_name("name"))) for node in nodes]
    names = [name for _, name in found]
    return [(n, name) for n, name in found if names.count(name) == 1 and n.end_point[0] > n.start_point[0]]


@kind("statement at start", "javascript")
def statement_at_start(text: str, rng: Random, names: Names) -> Edit:
    bodies = [(node.child_by_field_name("body"), name) for node, name in _functions(text)]
    body, name = pick(rng, [(body, name) for body, name in bodies if body.named_children])
    first = body.named_children[0]
    row = first.start_point[0]
    need(first.type != "comment" and row == body.start_point[0] + 1)
    value = names.camel_case("value", rng, text)
    new = names.code(rng, "javascript_statement", function=name, name=value) + (";" if ";\n" in text else "")
    lines = _lines(text)
    after = words.insert(lines, row, _indent(lines[row]) + new)
    return say(rng, "statement at start", new=new, function=name), after


@kind("delete function", "javascript")
def delete_function(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    need(len(lines) >= 6)
    node, name = pick(rng, [(n, name) for n, name in _functions(text) if n.type == "function_declaration"])
    start, end = node.start_point[0], node.end_point[0] + 1
    # What becomes of its uses, and of a comment above it?
    need(words.count(text, name) == words.count(_code(node), name))
    need(start == 0 or not lines[start - 1].strip())
    need("".join(lines[start:end]).strip() == _code(node))
    while end < len(lines) and not lines[end].strip():
        end += 1
    need(end < len(lines) and not lines[end].lstrip().startswith("}"))
    after = "".join(lines[:start] + lines[end:])
    return say(rng, "delete function", what="function", name=name), after


@kind("remove comment", "javascript")
def remove_comment(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    own = [n for n, line in enumerate(lines) if re.match(r"\s*//", line)]
    lone = [n for n in _lone_lines(text) if n in own and n - 1 not in own and n + 1 not in own]
    number = pick(rng, lone)
    comment = lines[number].strip()
    return say(rng, "remove comment", comment=comment), words.drop(lines, number, number + 1)


# JSON and TOML


_JSON_LINE = re.compile(
    r' *"(?P<key>[\w.@/-]+)": (?P<value>"[^"\\]*"|[\d.]+|true|false|null)(?P<end>,?)\n', re.ASCII
)
_TOML_LINE = re.compile(r'(?P<key>[\w-]+) = (?P<value>"[^"\\]*"|[\d.]+|true|false)(?P<end>)\n', re.ASCII)


def _entry(text: str, rng: Random, followed: bool = False) -> tuple[int, re.Match[str]]:
    """A line with one key and its value, whose key no other place has.

    Args:
        followed: whether another line can stand after it, or take its place.
    """
    is_json = text.lstrip().startswith("{")
    pattern = _JSON_LINE if is_json else _TOML_LINE
    matches = [(n, pattern.fullmatch(line)) for n, line in enumerate(_lines(text))]
    found = [(n, m) for n, m in matches if m and (m["end"] or not is_json or not followed)]
    return pick(rng, [(n, m) for n, m in found if _is_key(text, m["key"]) == 1])


def _is_key(text: str, key: str) -> int:
    return len(re.findall(rf"(?<![\w-])\"?{re.escape(key)}\"?\s*[:=]", text))


def _key_phrases(text: str, key: str, old: str) -> list[str]:
    return [key, f"{key}, nothing else has the name"] if words.count(text, old) == 1 else [key]


def _put(line: str, match: re.Match[str], **parts: str) -> str:
    """The line that was matched, with other parts."""
    changes = [(match.start(part), match.end(part), new) for part, new in parts.items()]
    for start, end, new in sorted(changes, reverse=True):
        line = line[:start] + new + line[end:]
    return line


def _value(rng: Random, names: Names, old: str) -> str:
    """Another value of the same type."""
    if old in ("true", "false"):
        return "false" if old == "true" else "true"
    if re.fullmatch(r'"[^\d"]{0,2}\d+\.\d+(\.\d+)?"', old):
        number = ".".join(str(rng.randint(0, 12)) for _ in range(3))
        return f'"{old[1] if not old[1].isdigit() else ""}{number}"'
    if old[0] == '"' or old == "null":
        return json.dumps(rng.choice(names.strings if rng.random() < 0.6 else names.words))
    return str(rng.randint(1, 999))


@kind("change value", "json", "toml")
def change_value(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    number, match = _entry(text, rng)
    new = _value(rng, names, match["value"])
    need(new != match["value"])
    lines[number] = _put(lines[number], match, value=new)
    return say(rng, "set", name=match["key"], old=match["value"], new=new), "".join(lines)


@kind("rename key", "json", "toml")
def rename_key(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    number, match = _entry(text, rng)
    old = match["key"]
    new = names.instead_of(old, rng, text) if old.isidentifier() else rng.choice(names.words)
    need(not _is_key(text, new))
    lines[number] = _put(lines[number], match, key=new)
    return say(rng, *_key_phrases(text, "rename key", old), old=old, new=new), "".join(lines)


@kind("remove key", "json", "toml")
def remove_key(text: str, rng: Random, names: Names) -> Edit:
    number, match = _entry(text, rng, followed=True)
    instruction = say(rng, *_key_phrases(text, "remove key", match["key"]), key=match["key"])
    return instruction, words.drop(_lines(text), number, number + 1)


@kind("add key", "json", "toml")
def add_key(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    number, match = _entry(text, rng, followed=True)
    key, value = rng.choice(names.words), _value(rng, names, rng.choice(['"text"', "true", "1", '"1.0.0"']))
    need(not _is_key(text, key))
    new = _put(lines[number], match, key=key, value=value).rstrip("\n")
    instruction = say(rng, "add key", key=key, value=value, old=match["key"])
    return instruction, words.insert(lines, number + 1, new)


# Markdown


def _headings(text: str) -> list[tuple[int, int, str]]:
    """Index of the line, level and title of the headings whose title says which is meant."""
    found = []
    in_code = False  # where a comment may look like a heading
    for n, line in enumerate(text.splitlines()):
        in_code ^= line.lstrip().startswith(("```", "~~~"))
        if not in_code and (match := re.fullmatch(r"(#+) (\w.*)", line)):
            found.append((n, len(match[1]), match[2].strip("# ")))
    need(not in_code)
    need(len({title.lower() for _, _, title in found}) == len(found))
    return found


@kind("change heading", "markdown")
def change_heading(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    number, level, old = pick(rng, _headings(text))
    new = " ".join(rng.choice(names.words) for _ in range(rng.randint(1, 3))).capitalize()
    lines[number] = f"{'#' * level} {new}\n"
    return say(rng, "change heading", old=old, new=new), "".join(lines)


@kind("replace word", "markdown")
def replace_word(text: str, rng: Random, names: Names) -> Edit:
    old = pick(rng, sorted(set(re.findall(r"(?<![\w/.-])[a-zA-Z]{5,}(?![\w/-])", text))))
    new = rng.choice(names.words)
    if old[:1].isupper():
        new = new.capitalize()
    # Nowhere in another word or another case.
    need(words.count(text, old) == text.lower().count(old.lower()) and new not in text)
    return say(rng, "replace word", old=old, new=new), text.replace(old, new)


@kind("add item", "markdown")
def add_item(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    item = re.compile(r"(\s*[-*] )([^\W_].{3,60})\n")
    found = [(n, m) for n in _lone_lines(text) if (m := item.fullmatch(lines[n])) and '"' not in m[2]]
    number, match = pick(rng, found)
    following = lines[number + 1] if number + 1 < len(lines) else ""
    # It is the item's last line, and no item of its own follows.
    need(
        not following.strip() or (item.match(following) and len(_indent(following)) <= len(_indent(match[0])))
    )
    new = rng.choice(names.docstrings)
    after = words.insert(lines, number + 1, match[1] + new)
    return say(rng, "add item", new=new, old=match[2]), after


@kind("delete section", "markdown")
def delete_section(text: str, rng: Random, names: Names) -> Edit:
    lines = _lines(text)
    heads = _headings(text)
    found = []
    for i, (number, level, title) in enumerate(heads):
        end = next((n for n, other, _ in heads[i + 1 :] if other <= level), None)
        if i and end and end - number < 20:
            found.append((number, end, title))
    start, end, title = pick(rng, found)
    return say(rng, "delete section", title=title), "".join(lines[:start] + lines[end:])


@kind("nothing to change", "javascript", "json", "toml", "markdown")
def nothing_to_change(text: str, rng: Random, names: Names) -> Edit:
    return say(rng, "nothing to change"), text


def make(text: str, language: str, name: str, rng: Random, names: Names) -> Edit | None:
    """An edit of the kind `name`, or None where the file gives no occasion. A valid file stays valid."""
    try:
        edit = KINDS[language][name](text, rng, names)
    except NoOccasion:
        return None
    differs = edit[1] != text or name == "nothing to change"
    return edit if differs and is_valid(edit[1], language) else None


def is_valid(text: str, language: str) -> bool:
    try:
        if language == "toml":
            tomllib.loads(text)
        elif language == "python":
            compile(text, "file", "exec", dont_inherit=True)
    except (ValueError, SyntaxError):
        return False
    return first_error(text, language) is None
