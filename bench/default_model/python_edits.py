"""Edits of Python files, made by code: each kind returns an instruction and the text that follows from it."""

from __future__ import annotations

import ast
import io
import re
import symtable
import tokenize
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

from bench.default_model import words
from bench.default_model.words import OPERATORS, WORDS, Edit, Names, NoOccasion, need, pick, say

Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias
Span = tuple[int, int]  # in bytes, as `ast` counts
N = TypeVar("N", bound=ast.AST)
Make = Callable[["Module", Random, Names], Edit]  # raises NoOccasion where a file gives none
KINDS: dict[str, Make] = {}

INDENT = "    "


class Module:
    """A Python file, its tree, and where in the text the tree's nodes stand.

    Attributes:
        functions: those with a body on lines of its own, and a name that no other function or class has.
        classes: those with such a name.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode()
        self.tree = ast.parse(text)
        self.lines = io.StringIO(text).readlines()  # as `ast` and `tokenize` divide it
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line.encode()))
        defined = list(self.walk(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        names = [node.name for node in defined]
        once = [node for node in defined if names.count(node.name) == 1]
        self.functions = [n for n in once if isinstance(n, Function) and n.body[0].lineno > n.lineno]
        self.classes = [n for n in once if isinstance(n, ast.ClassDef)]

    def walk(self, *kinds: type[N]) -> Iterator[N]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def span(self, node: Node) -> Span:
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def code(self, node: Node) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def line(self, number: int) -> str:
        """A line by its number from 1, as `ast` counts; empty after the last."""
        return self.lines[number - 1].rstrip("\n") if number <= len(self.lines) else ""

    def replace(self, *changes: tuple[int, int, str]) -> str:
        return words.splice(self.text, *changes)

    def insert(self, before: int, new: str) -> str:
        return words.insert(self.lines, before - 1, new)

    def drop(self, first: int, last: int) -> str:
        return words.drop(self.lines, first - 1, last)

    def count(self, name: str) -> int:
        return words.count(self.text, name)

    def owner(self, function: Function) -> ast.ClassDef | None:
        """The class whose method it is."""
        return next((owner for owner in self.walk(ast.ClassDef) if function in owner.body), None)

    def around(self, node: Node) -> Function | None:
        """The innermost function that the node stands in."""
        inside = [f for f in self.functions if f.lineno <= node.lineno <= f.end_lineno]
        return inside[-1] if inside else None

    def name_in(self, node: Function | ast.ClassDef) -> Span:
        """The name in a definition."""
        found = re.compile(rb"\b" + node.name.encode() + rb"\b").search(self.data, self.span(node)[0])
        need(found)
        return found.span()

    def in_words(self, name: str) -> bool:
        """Whether a string or a comment has the name, and nobody can say if it should follow a rename."""
        kinds = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return any(words.count(token.string, name) for token in tokens if token.type in kinds)


def kind(name: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        KINDS[name] = make
        return make

    return register


def docstring_of(node: Function | ast.ClassDef | ast.Module) -> ast.Expr | None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first if isinstance(first.value.value, str) else None
    return None


def first_line(node: ast.stmt) -> int:
    """Where a statement begins, its decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def indent_of(node: Function | ast.ClassDef) -> str:
    """The indentation of what the definition holds."""
    return " " * node.body[0].col_offset


# Renames


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _binds(table: symtable.SymbolTable, name: str) -> bool:
    if name not in table.get_identifiers():
        return False
    symbol = table.lookup(name)
    return symbol.is_local() or symbol.is_parameter() or symbol.is_imported()


def _is_one_global(module: Module, name: str) -> bool:
    """Whether every use of the bare name means the module's own: no function binds it anew."""
    _, *inner = _tables(symtable.symtable(module.text, "module", "exec"))
    return not any(_binds(table, name) for table in inner)


def _is_one_local(module: Module, function: Function, name: str) -> bool:
    """Whether the name means one thing in the whole function, and that thing is the function's."""
    for table in _tables(symtable.symtable(module.text, "module", "exec")):
        if table.get_type() == "function" and table.get_name() == function.name:
            inner = list(_tables(table))
            known = [t.lookup(name) for t in inner if name in t.get_identifiers()]
            return sum(_binds(t, name) for t in inner) == 1 and not any(
                symbol.is_global() or symbol.is_imported() for symbol in known
            )
    return False


def _name_spans(module: Module, old: str, inside: ast.AST) -> list[Span]:
    """Where the bare name stands as a variable, a parameter or a definition (not as an attribute)."""
    spans = []
    for node in ast.walk(inside):
        if isinstance(node, ast.Name) and node.id == old:
            spans.append(module.span(node))
        elif isinstance(node, ast.arg) and node.arg == old:
            start, _ = module.span(node)
            spans.append((start, start + len(old.encode())))
        elif isinstance(node, Function | ast.ClassDef) and node.name == old:
            spans.append(module.name_in(node))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            need(old not in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            need(node.name != old)
        elif isinstance(node, ast.MatchMapping):
            need(node.rest != old)
    return spans


def _attribute_spans(module: Module, attributes: list[ast.Attribute]) -> list[Span]:
    ends = [module.span(node)[1] for node in attributes]
    return [(end - len(node.attr.encode()), end) for node, end in zip(attributes, ends, strict=True)]


def _method_uses(module: Module, name: str, owner: ast.ClassDef) -> list[ast.Attribute]:
    """Where a method of the class is used.

    Raises:
        NoOccasion: an attribute of this name may be another class's.
    """
    family = [
        c for c in module.walk(ast.ClassDef) if c is owner or owner.name in [module.code(b) for b in c.bases]
    ]
    inside = {id(node) for c in family for node in ast.walk(c)}
    made = [a for a in module.walk(ast.Assign) if isinstance(a.value, ast.Call)]
    objects = [owner.name] + [
        module.code(a.targets[0]) for a in made if module.code(a.value.func) == owner.name
    ]
    uses = [node for node in module.walk(ast.Attribute) if node.attr == name]
    for use in uses:
        holder = module.code(use.value)
        need(holder in objects or (holder in ("self", "cls") and id(use) in inside))
    return uses


@kind("rename function")
def rename_function(module: Module, rng: Random, names: Names) -> Edit:
    found = [f for f in module.functions if not f.name.startswith("__")]
    used = [f for f in found if module.count(f.name) > 1]
    function = pick(rng, used if used and rng.random() < 0.7 else found)
    old = function.name
    need(not module.in_words(old))
    new = names.instead_of(old, rng, module.text)
    if owner := module.owner(function):
        spans = [module.name_in(function), *_attribute_spans(module, _method_uses(module, old, owner))]
        need(len(spans) == module.count(old))
        return words.rename(module.text, rng, rng.choice(["method", "function"]), old, new, spans)
    need(function in module.tree.body and _is_one_global(module, old))
    spans = _name_spans(module, old, module.tree)
    return words.rename(module.text, rng, "function", old, new, spans)


@kind("rename class")
def rename_class(module: Module, rng: Random, names: Names) -> Edit:
    old = pick(rng, [c.name for c in module.classes if c in module.tree.body])
    need(not module.in_words(old) and _is_one_global(module, old))
    new = names.instead_of(old, rng, module.text)
    return words.rename(module.text, rng, "class", old, new, _name_spans(module, old, module.tree))


@kind("rename variable")
def rename_variable(module: Module, rng: Random, names: Names) -> Edit:
    if rng.random() < 0.3:
        return _rename_global(module, rng, names)
    function = pick(rng, module.functions)
    own = [arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]]
    bound = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    found = {name for name in own + bound if len(name) > 1 and not name.startswith("__")}
    old = pick(rng, sorted(found - {"self", "cls"}))
    need(not module.in_words(old) and _is_one_local(module, function, old))
    # Callers may name a parameter, here or in other files.
    need(old not in own or all(keyword.arg != old for keyword in module.walk(ast.keyword)))
    args = function.args
    outside = [*function.decorator_list, *args.defaults, *filter(None, args.kw_defaults)]
    outside += [a.annotation for a in ast.walk(args) if isinstance(a, ast.arg) and a.annotation]
    outside += [function.returns] if function.returns else []
    need(not any(_name_spans(module, old, node) for node in outside))
    new = names.instead_of(old, rng, module.text)
    what = "parameter" if old in own else "variable"
    spans = _name_spans(module, old, function)
    if len(spans) == module.count(old) and rng.random() < 0.6:
        return words.rename(module.text, rng, what, old, new, spans)
    instruction = say(rng, "rename in a function", what=what, function=function.name, old=old, new=new)
    return instruction, module.replace(*((start, end, new) for start, end in spans))


def _rename_global(module: Module, rng: Random, names: Names) -> Edit:
    targets = [t for n in module.tree.body if isinstance(n, ast.Assign) for t in n.targets]
    found = {t.id for t in targets if isinstance(t, ast.Name) and not t.id.startswith("__")}
    old = pick(rng, sorted(found))
    need(not module.in_words(old) and _is_one_global(module, old))
    what = rng.choice(["constant", "variable"]) if old.isupper() else "variable"
    new = names.instead_of(old, rng, module.text)
    return words.rename(module.text, rng, what, old, new, _name_spans(module, old, module.tree))


@kind("rename attribute")
def rename_attribute(module: Module, rng: Random, names: Names) -> Edit:
    owner = pick(rng, list(module.walk(ast.ClassDef)))
    own = [n for n in ast.walk(owner) if isinstance(n, ast.Attribute) and module.code(n.value) == "self"]
    # What the class's body binds (methods, fields) has another place to change.
    body = [n for n in owner.body if not isinstance(n, Function)]
    bound = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
    bound |= {n.name for n in module.walk(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)}
    old = pick(rng, sorted({n.attr for n in own if len(n.attr) > 1} - bound))
    need(not module.in_words(old))
    uses = [n for n in own if n.attr == old]
    need(len(uses) == sum(n.attr == old for n in module.walk(ast.Attribute)))
    spans = _attribute_spans(module, uses)
    new = names.instead_of(old, rng, module.text)
    bare = len(spans) == module.count(old) and rng.random() < 0.5
    return words.rename(module.text, rng, "attribute", old, new, spans, "{}" if bare else "self.{}")


# Values


def _number(rng: Random, old: int | float) -> str:
    if isinstance(old, float):
        near = [round(old * 2, 4), round(old / 2, 4), f"{rng.randint(0, 99)}.{rng.randint(1, 9)}"]
    else:
        usual = rng.choice([30, 60, 100, 256, 512, 1024, 4096])
        near = [old + 1, old * 2, old * 10, old // 2, rng.randint(2, 20), rng.randint(20, 1000), usual]
    return str(rng.choice(near))


def _bindings(module: Module) -> list[str]:
    """What assignments, parameters and keyword arguments name, each as often as they do."""
    found = [n.arg for n in module.walk(ast.arg, ast.keyword) if n.arg]
    targets = module.walk(ast.Name, ast.Attribute, ast.Subscript)
    return found + [module.code(n) for n in targets if isinstance(n.ctx, ast.Store)]


def _change_value(module: Module, rng: Random, node: ast.Constant, new: str) -> Edit:
    """Put `new` for the expression `node`, and say where by what points at it alone."""
    old = module.code(node)
    need(new != old and "\n" not in old)
    ways: list[tuple[list[str], dict[str, str]]] = []
    if module.text.count(old) == 1 and len(old) > 1:
        ways.append((["change value"], {"old": old, "new": new}))
    function = module.around(node)
    if function and module.code(function).count(old) == 1:
        fields = {"function": function.name, "old": old, "new": new}
        ways.append((["change value in a function"], fields))
    for assign in module.walk(ast.Assign):
        if assign.value is node and len(assign.targets) == 1:
            name = module.code(assign.targets[0])
            if _bindings(module).count(name) == 1 and re.fullmatch(r"[\w.]+", name):
                ways += [(["set"], {"name": name, "old": old, "new": new})] * 2
    for keyword in module.walk(ast.keyword):
        pair = f"{keyword.arg}={old}"
        if keyword.value is node and keyword.arg and module.text.count(pair) == 1:
            ways.append((["change argument"], {"old": pair, "new": f"{keyword.arg}={new}"}))
    line = module.line(node.lineno).strip()
    if sum(other.strip() == line for other in module.lines) == 1:
        start = node.col_offset - len(module.line(node.lineno)) + len(module.line(node.lineno).lstrip())
        changed = words.splice(line, (start, start + len(old.encode()), new))
        if line.count(old) == 1:
            ways.append((["change value in a line"], {"line": line, "old": old, "new": new}))
        once = ["change line, its text stands once"] if module.text.count(line) == 1 else []
        ways.append((["change line", *once], {"old": line, "new": changed}))
    keys, fields = pick(rng, ways)
    return say(rng, *keys, **fields), module.replace((*module.span(node), new))


@kind("constant")
def constant(module: Module, rng: Random, names: Names) -> Edit:
    found = [n for n in module.walk(ast.Constant) if type(n.value) in (int, float)]
    node = pick(rng, found)
    need(re.fullmatch(r"[\d.]+", module.code(node)))
    return _change_value(module, rng, node, _number(rng, node.value))


@kind("string")
def string(module: Module, rng: Random, names: Names) -> Edit:
    owners = [module.tree, *module.walk(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)]
    skipped = {id(doc.value) for node in owners if (doc := docstring_of(node))}
    skipped |= {id(part) for joined in module.walk(ast.JoinedStr) for part in joined.values}
    found = [n for n in module.walk(ast.Constant) if isinstance(n.value, str) and id(n) not in skipped]
    plain = re.compile(r"\"[^\"\\\n]{2,60}\"|'[^'\\\n]{2,60}'")
    node = pick(rng, [n for n in found if plain.fullmatch(module.code(n))])
    parts = node.value.split(" ")
    if len(parts) > 2 and rng.random() < 0.6:
        parts[rng.randrange(len(parts))] = rng.choice(names.words)
        new = " ".join(parts)
    elif node.value.isidentifier():
        new = names.instead_of(node.value, rng, module.text)
    else:
        new = rng.choice(names.strings)
    mark = module.code(node)[0]
    need(mark not in new)
    return _change_value(module, rng, node, mark + new + mark)


@kind("default")
def default(module: Module, rng: Random, names: Names) -> Edit:
    found = []
    for function in module.functions:
        args = function.args
        pairs = list(zip(args.args[len(args.args) - len(args.defaults) :], args.defaults, strict=True))
        pairs += [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d]
        found += [(function, arg.arg, value) for arg, value in pairs if isinstance(value, ast.Constant)]
    function, arg, value = pick(rng, found)
    old = module.code(value)
    if isinstance(value.value, bool):
        new = str(not value.value)
    elif isinstance(value.value, int | float):
        new = _number(rng, value.value)
    elif isinstance(value.value, str):
        new = f'"{rng.choice(names.words)}"'
    else:
        new = rng.choice(["0", "1", "True", "False", '""', "()", str(rng.randint(2, 100))])
    need(new != old and "\n" not in old)
    instruction = say(rng, "default", arg=arg, function=function.name, new=new, old=old)
    return instruction, module.replace((*module.span(value), new))


@kind("operator")
def operator(module: Module, rng: Random, names: Names) -> Edit:
    found: list[tuple[ast.expr, ast.expr]] = []
    found += [(node.left, node.comparators[0]) for node in module.walk(ast.Compare)]
    found += [(node.left, node.right) for node in module.walk(ast.BinOp)]
    found += [(node.values[0], node.values[1]) for node in module.walk(ast.BoolOp)]
    rng.shuffle(found)
    for left, right in found:
        start, end = module.span(left)[1], module.span(right)[0]
        between = module.data[start:end].decode()
        old = between.strip()
        whole = module.data[module.span(left)[0] : module.span(right)[1]].decode()
        short = len(whole) <= 80 and "\n" not in whole
        if old in OPERATORS["python"] and short and module.text.count(whole) == 1:
            break
    else:
        raise NoOccasion
    new = rng.choice(OPERATORS["python"][old])
    at = start + between.index(old)
    inside = at - module.span(left)[0]
    changed = words.splice(whole, (inside, inside + len(old), new))
    keys = ["operator"]
    if whole.count(old) == 1:
        keys.append("operator, one in the expression")
    function = module.around(left)
    if function:
        keys.append("operator in a function")
        signs = re.findall(rf"(?<!\S){re.escape(old)}(?!\S)", module.code(function))
        if len(signs) == 1 and between == f" {old} ":
            keys.append("operator, one in a function")
    fields = {"whole": whole, "changed": changed, "old": old, "new": new}
    instruction = say(rng, *keys, function=function.name if function else "", **fields)
    return instruction, module.replace((at, at + len(old), new))


@kind("condition")
def condition(module: Module, rng: Random, names: Names) -> Edit:
    node = pick(rng, list(module.walk(ast.If)))
    old = module.code(node.test)
    need("\n" not in old and module.text.count(old) == 1 and len(old) <= 60)
    called = {id(n.func) for n in ast.walk(node.test) if isinstance(n, ast.Call)}
    found = [n for n in ast.walk(node.test) if isinstance(n, ast.Name) and id(n) not in called]
    name = pick(rng, sorted({n.id for n in found}))
    need(not re.search("__name__|TYPE_CHECKING", old))
    simple = re.fullmatch(r"[\w.\[\]()'\"]+", old)
    word, other = rng.choice(names.words), rng.choice(names.words)
    options = [
        f"{name} is not None" if old == name else f"{old} and {word}",
        f"not {old}" if simple else f"not ({old})",
        f"{old} and not {name}.{other}" if " or " not in old else name,
        f"len({name}) > {rng.randint(0, 9)}",
        f"isinstance({name}, {rng.choice(['str', 'int', 'list', 'dict', 'tuple', 'bytes'])})",
        f"{name} is None",
    ]
    new = rng.choice([option for option in options if option != old])
    keyword = "elif" if module.code(node).startswith("elif") else "if"
    line, changed = f"{keyword} {old}:", f"{keyword} {new}:"
    keys = ["condition", *(["condition, as a line"] if line in module.text else [])]
    instruction = say(rng, *keys, old=old, new=new, line=line, changed=changed)
    return instruction, module.replace((*module.span(node.test), new))


# Parameters


def _parameters(function: Function) -> list[ast.arg]:
    """Those that callers give by position, without `self`."""
    args = function.args.args
    return args[1:] if args and args[0].arg in ("self", "cls") else args


def _calls(module: Module, function: Function) -> list[ast.Call] | None:
    """The calls of a function in its file; None if it may also be used in another way."""
    owner = module.owner(function)
    if owner and function.name.startswith("__"):  # nobody calls it by its name
        return [] if module.count(owner.name) == 1 and not module.count("cls") else None
    calls = []
    for node in module.walk(ast.Call):
        target = node.func
        if isinstance(target, ast.Attribute if owner else ast.Name):
            name = target.attr if isinstance(target, ast.Attribute) else target.id
            calls += [node] if name == function.name else []
    if owner:
        uses = _method_uses(module, function.name, owner)
        first = [arg.arg for arg in function.args.args[:1]]
        if first == ["self"] and any(module.code(use.value) == owner.name for use in uses):
            return None
    plain = not any(isinstance(a, ast.Starred) for c in calls for a in c.args)
    named = all(k.arg for c in calls for k in c.keywords)
    return calls if plain and named and module.count(function.name) == len(calls) + 1 else None


def _parameter_spans(module: Module, function: Function) -> list[Span]:
    """Where the parameters stand, each with its default."""
    spans = [module.span(arg) for arg in function.args.args]
    defaults = function.args.defaults
    for index, value in enumerate(defaults, len(spans) - len(defaults)):
        spans[index] = spans[index][0], module.span(value)[1]
    return spans


def _add_item(module: Module, spans: list[Span], opening: int, new: str) -> tuple[int, int, str]:
    """The change that puts `new` after the last item, or behind the bracket that opens at `opening`."""
    if not spans:
        return opening + 1, opening + 1, new
    end = spans[-1][1]
    items = module.data[opening + 1 : end]
    need(items.count(b"(") == items.count(b")"))  # else the last one is in brackets
    return end, end, f", {new}"


def _remove_item(module: Module, spans: list[Span], index: int) -> tuple[int, int, str]:
    """The change that takes one of the comma-separated items away, with one comma."""
    start, end = spans[index]
    if index > 0:
        start = spans[index - 1][1]
    elif len(spans) > 1:
        end = spans[1][0]
    need(b"#" not in module.data[start:end])
    return start, end, ""


def _swap(module: Module, a: Span, b: Span) -> list[tuple[int, int, str]]:
    return [(*a, module.data[slice(*b)].decode()), (*b, module.data[slice(*a)].decode())]


@kind("add parameter")
def add_parameter(module: Module, rng: Random, names: Names) -> Edit:
    function = pick(rng, module.functions)
    args = function.args
    need(not (args.posonlyargs or args.vararg or args.kwarg or args.kwonlyargs))
    name = rng.choice(names.variables)
    need(not module.count(name) and name[0] != "_" and name.isidentifier())
    spans = _parameter_spans(module, function)
    opening = module.data.index(b"(", module.name_in(function)[1])
    need("\n" not in module.data[opening : spans[-1][1] if spans else opening].decode())
    calls = _calls(module, function)
    if calls and not args.defaults and rng.random() < 0.6:
        value = rng.choice([*WORDS["defaults"], name])
        need(not any(call.keywords or "\n" in module.code(call) for call in calls))
        changes = [_add_item(module, spans, opening, name)]
        for call in calls:
            given = [module.span(a) for a in call.args]
            start = module.data.index(b"(", module.span(call.func)[1])
            changes.append(_add_item(module, given, start, value))
        fields = {"name": name, "function": function.name, "value": value}
        return say(rng, "add parameter and pass it", **fields), module.replace(*changes)
    value = rng.choice(WORDS["defaults"])
    keys = ["add parameter"]
    if _parameters(function) and all(a.annotation for a in _parameters(function)):
        new = f"{name}: {rng.choice(['str', 'int', 'bool', 'float'])} = {value}"
    else:
        new = f"{name}={value}"
        keys.append("add parameter without annotation")
    instruction = say(rng, *keys, new=new, name=name, value=value, function=function.name)
    return instruction, module.replace(_add_item(module, spans, opening, new))


@kind("remove parameter")
def remove_parameter(module: Module, rng: Random, names: Names) -> Edit:
    found = []
    for function in module.functions:
        args = function.args
        if not (args.vararg or args.kwonlyargs or args.posonlyargs or args.kwarg):
            used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
            found += [(function, arg) for arg in _parameters(function) if arg.arg not in used]
    function, arg = pick(rng, [(f, arg) for f, arg in found if not module.in_words(arg.arg)])
    calls = _calls(module, function)
    need(calls is not None)
    index = function.args.args.index(arg)
    changes = [_remove_item(module, _parameter_spans(module, function), index)]
    place = _parameters(function).index(arg)
    for call in calls:
        given = [*call.args, *call.keywords]
        named = [i for i, k in enumerate(given) if isinstance(k, ast.keyword) and k.arg == arg.arg]
        for i in [place] if place < len(call.args) else named:
            changes.append(_remove_item(module, [module.span(g) for g in given], i))
    instruction = say(rng, "remove parameter", name=arg.arg, function=function.name)
    return instruction, module.replace(*changes)


@kind("reorder parameters")
def reorder_parameters(module: Module, rng: Random, names: Names) -> Edit:
    found = [f for f in module.functions if len(_parameters(f)) >= 2 and not f.args.posonlyargs]
    # A parameter without a default cannot stand behind one with it.
    function = pick(rng, [f for f in found if len(f.args.defaults) in (0, len(_parameters(f)))])
    calls = _calls(module, function)
    need(calls is not None)
    place = rng.randrange(len(_parameters(function)) - 1)
    a, b = _parameters(function)[place : place + 2]
    first = function.args.args.index(a)
    spans = _parameter_spans(module, function)
    changes = _swap(module, spans[first], spans[first + 1])
    for call in calls:
        given = [module.span(arg) for arg in call.args]
        need(len(given) != place + 1)  # one by position and one by name or not at all: no swap says that
        if len(given) > place + 1:
            changes += _swap(module, given[place], given[place + 1])
    keys = ["reorder parameters", *(["reorder parameters, the first two"] if place == 0 else [])]
    return say(rng, *keys, a=a.arg, b=b.arg, function=function.name), module.replace(*changes)


# Docstrings, comments, annotations, imports, decorators


@kind("add docstring")
def add_docstring(module: Module, rng: Random, names: Names) -> Edit:
    found = [n for n in [*module.functions, *module.classes] if not docstring_of(n)]
    node = pick(rng, [n for n in found if n.body[0].lineno > n.lineno])
    line = first_line(node.body[0])
    while line > node.lineno + 1 and re.match(r"\s*(#.*)?$", module.line(line - 1)):
        line -= 1
    need(re.search(r":\s*(#.*)?$", module.line(line - 1)))
    doc = rng.choice(names.docstrings)
    after = module.insert(line, f'{indent_of(node)}"""{doc}"""')
    return say(rng, "add docstring", name=node.name, doc=doc), after


@kind("change docstring")
def change_docstring(module: Module, rng: Random, names: Names) -> Edit:
    docs = [(n, doc) for n in [*module.functions, *module.classes] if (doc := docstring_of(n))]
    node, old = pick(rng, [(n, doc) for n, doc in docs if doc.lineno == doc.end_lineno])
    need(module.code(old).startswith('"""'))
    doc = rng.choice(names.docstrings)
    after = module.replace((*module.span(old), f'"""{doc}"""'))
    return say(rng, "change docstring", name=node.name, doc=doc), after


@kind("remove docstring")
def remove_docstring(module: Module, rng: Random, names: Names) -> Edit:
    node = pick(rng, [n for n in [*module.functions, *module.classes] if docstring_of(n) and len(n.body) > 1])
    doc = docstring_of(node)
    end = doc.end_lineno
    while not module.line(end + 1).strip():
        end += 1  # an empty line that set the docstring apart goes with it
    return say(rng, "remove docstring", name=node.name), module.drop(doc.lineno, end)


@kind("add comment")
def add_comment(module: Module, rng: Random, names: Names) -> Edit:
    node = pick(rng, [*module.functions, *module.classes])
    text = rng.choice(names.comments)
    key = "add comment above decorators" if node.decorator_list else "add comment"
    after = module.insert(first_line(node), f"{' ' * node.col_offset}# {text}")
    return say(rng, key, name=node.name, text=text), after


@kind("remove comment")
def remove_comment(module: Module, rng: Random, names: Names) -> Edit:
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    starts = [t.start[0] for t in tokens if t.type == tokenize.COMMENT and not t.line[: t.start[1]].strip()]
    lone = [n for n in starts if n - 1 not in starts and n + 1 not in starts]
    line = pick(rng, [n for n in lone if re.fullmatch(r"\s*#.{4,70}", module.line(n))])
    comment = module.line(line).strip()
    need(module.text.count(comment) == 1)
    return say(rng, "remove comment", comment=comment), module.drop(line, line)


def _imports(module: Module) -> list[ast.Import | ast.ImportFrom]:
    """The imports that stand in one block at the top."""
    found: list[ast.Import | ast.ImportFrom] = []
    for node in module.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif found:
            break
    need(found)
    return found


@kind("add import")
def add_import(module: Module, rng: Random, names: Names) -> Edit:
    imports = _imports(module)
    if rng.random() < 0.6:
        new = f"import {rng.choice(WORDS['modules'])}"
    else:
        new = rng.choice(WORDS["from_imports"])
        # One could add the name to the line that imports from there.
        need(all(n.module != new.split()[1] for n in module.walk(ast.ImportFrom)))
    need(not module.count(new.split()[-1]))
    if rng.random() < 0.3:
        other = rng.choice(imports)
        need(other.lineno == other.end_lineno)
        instruction = say(rng, "add import after another", new=new, other=module.code(other))
        return instruction, module.insert(other.end_lineno + 1, new)
    last = imports[-1]
    keys = ["add import"]
    if all(node.lineno <= last.lineno for node in module.walk(ast.Import, ast.ImportFrom)):
        keys.append("add import, all stand together")
    return say(rng, *keys, new=new), module.insert(last.end_lineno + 1, new)


@kind("remove import")
def remove_import(module: Module, rng: Random, names: Names) -> Edit:
    node = pick(rng, [n for n in module.tree.body if isinstance(n, ast.Import | ast.ImportFrom)])
    need(len(module.tree.body) >= 3 and node.lineno == node.end_lineno)
    line = module.code(node)
    if isinstance(node, ast.ImportFrom) and len(node.names) > 1 and "(" not in line:
        name = rng.choice(node.names)
        everywhere = [a.name for n in module.walk(ast.Import, ast.ImportFrom) for a in n.names]
        need(not name.asname and everywhere.count(name.name) == 1)
        spans = [module.span(n) for n in node.names]
        after = module.replace(_remove_item(module, spans, node.names.index(name)))
        origin = "." * node.level + (node.module or "")
        return say(rng, "remove import of a name", name=name.name, module=origin), after
    need(module.line(node.lineno) == line and module.text.count(line) == 1)
    keys = ["remove import"]
    if isinstance(node, ast.Import) and len(node.names) == 1 and not node.names[0].asname:
        keys.append("remove import of a module")
    return say(rng, *keys, line=line, name=node.names[0].name), module.drop(node.lineno, node.lineno)


@kind("add decorator")
def add_decorator(module: Module, rng: Random, names: Names) -> Edit:
    function = pick(rng, [f for f in module.functions if not f.decorator_list])
    decorator = "@" + (rng.choice(WORDS["decorators"]) if rng.random() < 0.8 else rng.choice(names.functions))
    after = module.insert(function.lineno, " " * function.col_offset + decorator)
    return say(rng, "add decorator", decorator=decorator, function=function.name), after


@kind("remove decorator")
def remove_decorator(module: Module, rng: Random, names: Names) -> Edit:
    function, node = pick(rng, [(f, d) for f in module.functions for d in f.decorator_list])
    decorator = "@" + module.code(node)
    need(module.line(node.lineno).strip() == decorator)
    instruction = say(rng, "remove decorator", decorator=decorator, function=function.name)
    return instruction, module.drop(node.lineno, node.lineno)


def _default_of(function: Function, arg: ast.arg) -> ast.expr | None:
    args = function.args
    index = args.args.index(arg) - (len(args.args) - len(args.defaults))
    return args.defaults[index] if index >= 0 else None


@kind("add annotation")
def add_annotation(module: Module, rng: Random, names: Names) -> Edit:
    found = [(f, a) for f in module.functions for a in _parameters(f) if not a.annotation]
    function, arg = pick(rng, found)
    new = rng.choice(WORDS["types"])
    value = _default_of(function, arg)
    end = module.span(arg)[1]
    change = (end, end, f": {new}")
    if value:  # PEP 8 puts spaces around the "=" of an annotated parameter
        change = (end, module.span(value)[0], f": {new} = ")
    instruction = say(rng, "add annotation", arg=arg.arg, function=function.name, new=new)
    return instruction, module.replace(change)


@kind("remove annotation")
def remove_annotation(module: Module, rng: Random, names: Names) -> Edit:
    found = [(f, a) for f in module.functions for a in _parameters(f) if a.annotation]
    function, arg = pick(rng, found)
    value = _default_of(function, arg)
    start, end = module.span(arg)
    start += len(arg.arg.encode())
    change = (start, module.span(value)[0], "=") if value else (start, end, "")
    return say(rng, "remove annotation", arg=arg.arg, function=function.name), module.replace(change)


@kind("return type")
def return_type(module: Module, rng: Random, names: Names) -> Edit:
    function = pick(rng, module.functions)
    new = rng.choice([*WORDS["types"], *WORDS["returned"]])
    if function.returns is None:
        start, _ = module.span(function)
        end, _ = module.span(function.body[0])
        found = list(re.finditer(rb"\)(\s*):[ \t]*(#.*)?$", module.data[start:end], re.MULTILINE))
        need(len(found) == 1)
        at = start + found[0].start() + 1
        instruction = say(rng, "add return type", function=function.name, new=new)
        return instruction, module.replace((at, at, f" -> {new}"))
    if rng.random() < 0.4:
        start, end = module.span(function.returns)
        start = len(module.data[: module.data.rindex(b"->", 0, start)].rstrip(b" "))
        after = module.replace((start, end, ""))
        return say(rng, "remove return type", function=function.name), after
    old = module.code(function.returns)
    need(new != old)
    instruction = say(rng, "change return type", function=function.name, new=new, old=old)
    return instruction, module.replace((*module.span(function.returns), new))


# Statements


def _statement(module: Module, rng: Random, names: Names, function: Function) -> str:
    arg = rng.choice([a.arg for a in _parameters(function)] or [rng.choice(names.variables)])
    special = "method_statement" if module.owner(function) else "function_statement"
    return names.code(rng, "statement", special, arg=arg)


def _log(rng: Random, names: Names, function: Function) -> str:
    message = names.code(rng, "message", function=function.name)
    if args := _parameters(function):
        return names.code(rng, "log", "log_argument", message=message, arg=args[0].arg)
    return names.code(rng, "log", message=message)


def _start(module: Module, function: Function) -> int:
    """The line at which a first statement goes in, after the docstring.

    Raises:
        NoOccasion: a comment or an empty line makes that a matter of taste.
    """
    doc = docstring_of(function)
    need(not doc or len(function.body) > 1)
    line = first_line(function.body[1 if doc else 0])
    need(line == doc.end_lineno + 1 if doc else not re.match(r"\s*(#.*)?$", module.line(line - 1)))
    return line


def _end(module: Module, function: Function) -> int:
    """The line after a function's last statement.

    Raises:
        NoOccasion: a comment that belongs to the function stands there.
    """
    line = module.line(function.end_lineno + 1)
    need(not line.startswith(" " * (function.col_offset + 1)) or not line.lstrip().startswith("#"))
    return function.end_lineno + 1


def _insert_at_start(module: Module, function: Function, *new: str) -> str:
    return module.insert(_start(module, function), "\n".join(indent_of(function) + line for line in new))


@kind("statement at start")
def statement_at_start(module: Module, rng: Random, names: Names) -> Edit:
    function = pick(rng, module.functions)
    new = _statement(module, rng, names, function)
    after = _insert_at_start(module, function, new)
    return say(rng, "statement at start", new=new, function=function.name), after


@kind("log line")
def log_line(module: Module, rng: Random, names: Names) -> Edit:
    function = pick(rng, module.functions)
    new = _log(rng, names, function)
    return say(rng, "log line", new=new, function=function.name), _insert_at_start(module, function, new)


@kind("guard")
def guard(module: Module, rng: Random, names: Names) -> Edit:
    function = pick(rng, [f for f in module.functions if _parameters(f)])
    arg = rng.choice(_parameters(function)).arg
    test = names.code(rng, "test", arg=arg)
    error, message = names.code(rng, "reject_error"), names.code(rng, "reject_message", arg=arg)
    act = names.code(rng, "reject", error=error, message=message)
    after = _insert_at_start(module, function, f"if {test}:", INDENT + act)
    return say(rng, "guard", test=test, act=act, function=function.name), after


@kind("statement at end")
def statement_at_end(module: Module, rng: Random, names: Names) -> Edit:
    no_end = ast.Return | ast.Raise | ast.Pass | ast.Continue | Function | ast.ClassDef
    function = pick(rng, [f for f in module.functions if not isinstance(f.body[-1], no_end)])
    need(not docstring_of(function) or len(function.body) > 1)
    new = _statement(module, rng, names, function) if rng.random() < 0.7 else _log(rng, names, function)
    after = module.insert(_end(module, function), indent_of(function) + new)
    return say(rng, "statement at end", new=new, function=function.name), after


@kind("delete function")
def delete_function(module: Module, rng: Random, names: Names) -> Edit:
    owners = [module.tree, *module.walk(ast.ClassDef)]
    found = [(o, n) for o in owners for n in o.body if n in [*module.functions, *module.classes]]
    owner, node = pick(rng, [(o, n) for o, n in found if len(o.body) > 1])
    code = module.code(node)
    # What becomes of its uses, and of comments next to it?
    need(module.count(node.name) == words.count(code, node.name))
    first, last = first_line(node), node.end_lineno
    need(first == 1 or not module.line(first - 1).lstrip().startswith("#"))
    if not isinstance(node, ast.ClassDef):
        _end(module, node)
    if node is owner.body[-1]:
        while first > 1 and not module.line(first - 1).strip():
            first -= 1
    else:
        while not module.line(last + 1).strip():
            last += 1
    what = "class" if isinstance(node, ast.ClassDef) else "function" if owner is module.tree else "method"
    after = "".join(module.lines[: first - 1] + module.lines[last:])
    return say(rng, "delete function", what=what, name=node.name), after


@kind("wrap body")
def wrap_body(module: Module, rng: Random, names: Names) -> Edit:
    function = pick(rng, [f for f in module.functions if f.end_lineno - f.lineno < 25])
    start, end = _start(module, function), _end(module, function)
    for node in ast.walk(function):  # a string over several lines must not be indented
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno >= start:
            need(node.lineno == node.end_lineno)
    indent = indent_of(function)
    body = [INDENT + line if line.strip() else line for line in module.lines[start - 1 : end - 1]]
    turn = rng.random()
    if turn < 0.4:
        error = names.code(rng, "caught")
        act = names.code(rng, "on_error", function=function.name)
        body = [f"{indent}try:\n", *body, f"{indent}except {error}:\n", f"{indent}{INDENT}{act}\n"]
        instruction = say(rng, "wrap body in try", function=function.name, error=error, act=act)
    else:
        word = "with" if turn < 0.7 else "if"
        head = f"{word} {names.code(rng, word)}"
        body = [f"{indent}{head}:\n", *body]
        head += rng.choice(["", ":"])
        instruction = say(rng, "wrap body", f"wrap body in {word}", function=function.name, head=head)
    return instruction, "".join(module.lines[: start - 1] + body + module.lines[end - 1 :])


@kind("nothing to change")
def nothing_to_change(module: Module, rng: Random, names: Names) -> Edit:
    missing = {"old": names.instead_of("load", rng, module.text), "new": rng.choice(names.functions)}
    ways: list[tuple[str, dict[str, str]]] = [("nothing to change", {})]
    ways.append(("rename what is not there", missing))
    imports = [n for n in module.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    if one := [module.code(n) for n in imports if n.lineno == n.end_lineno]:
        ways.append(("import what is imported", {"line": rng.choice(one)}))
    for node in module.walk(ast.Assign):
        name, value = module.code(node.targets[0]), module.code(node.value)
        if isinstance(node.value, ast.Constant) and "\n" not in value and module.count(name) == 1:
            ways.append(("set what is set", {"name": name, "value": value}))
    key, fields = rng.choice(ways)
    return say(rng, key, **fields), module.text


def make(text: str, name: str, rng: Random, names: Names) -> Edit | None:
    """An edit of the kind `name` of a Python file, or None where the file gives no occasion.

    The result is valid Python wherever the file was.
    """
    try:
        edit = KINDS[name](Module(text), rng, names)
        ast.parse(edit[1])
    except (NoOccasion, SyntaxError):
        return None
    return edit if edit[1] != text or name == "nothing to change" else None
