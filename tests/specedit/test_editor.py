"""SpecEditor, from prompt to result: first with a model that writes a given answer, then with a real one."""

import gc
import json
import sys
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specedit import Refused, Sampling, SpecEditError, SpecEditor
from specedit.decoding.cost import CostCurve
from specedit.decoding.encode import encode_raw, encode_text
from specedit.editing import SourceFile
from specedit.types import Cancelled

OLD = "".join(f"line {number}\n" for number in range(12))
NEW = OLD.replace("line 5", "row 5")
ANSWER = f"{NEW}````"
CHAT = [{"role": "user", "content": "Say it."}]


# Rewriting


def test_rewrite_of_a_text(replay):
    result = replay(ANSWER).rewrite(OLD, "Rename line 5.")

    assert result.text == NEW
    assert "-line 5\n+row 5\n" in result.diff
    assert result.finish_reason == "stop"
    assert result.problems == []


def test_rewrite_of_a_file(replay, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(OLD.replace("\n", "\r\n").encode())

    result = replay(ANSWER).rewrite(path, "Rename line 5.")
    result.write()

    assert path.read_bytes() == NEW.replace("\n", "\r\n").encode()


@pytest.mark.parametrize("new", ["", "x = 1\n"])
def test_an_empty_file(replay, tmp_path, new):
    path = tmp_path / "a.py"
    path.touch()
    result = replay(f"{new}````").rewrite(path, "Set x to 1.")
    result.write()
    assert path.read_text() == result.text == new
    assert bool(result.diff) is bool(new)


def test_a_string_is_a_text_even_if_it_names_a_file(replay, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(OLD)
    assert replay("x\n````").rewrite(str(path), "Say x.").text == "x"


def test_text_that_came_from_no_file_is_written_to_a_named_one(replay, tmp_path):
    result = replay(ANSWER).rewrite(OLD, "Rename line 5.")
    with pytest.raises(SpecEditError, match="name the file"):
        result.write()
    result.write(tmp_path / "new.txt")
    assert (tmp_path / "new.txt").read_text() == NEW


def test_the_prompt_holds_file_instruction_references_and_the_open_fence(replay, tokenizer):
    result = replay(ANSWER).rewrite(OLD, "Rename line 5.", name="src/a.py", references={"b.py": "import a\n"})
    prompt = tokenizer.decode(result.generation.prompt)
    assert f"a.py\n```python\n{OLD}```\n\nRename line 5." in prompt
    assert "b.py\n```python\nimport a\n```" in prompt
    assert prompt.endswith("<|im_start|>assistant\n```python\n")


def test_a_reference_is_copied_from(replay):
    header = "# Copyright of everybody who ever wrote a line in here\n"
    editor = replay(f"{header}x = 1\n```", proposers=["predicted"])
    result = editor.rewrite("x = 1\n", "Add the header.", references={"b.py": header})
    assert result.stats.accepted["predicted"] > 40


def test_a_file_name_may_be_any_bytes(replay):
    source = SourceFile.from_text(OLD, "caf\udce9.txt")
    assert replay(ANSWER).rewrite(source, "Rename line 5.").text == NEW


# Streaming


@pytest.mark.parametrize(
    "answer", [ANSWER, f"{NEW}```\nDone.", "smile 🙂🙃\nnaïve €\n```", "```", "a\n\n\n```"]
)
def test_pieces_join_to_the_text(replay, answer):
    stream = replay(answer).stream_rewrite(OLD, "Change blank lines.")
    pieces = list(stream)
    assert "".join(pieces) == stream.result.text
    assert all(pieces)


def test_pieces_hold_complete_characters(replay):
    # Every emoji is four tokens here.
    pieces = list(replay("🙂🙃 naïve €").stream(CHAT, speculate=False))
    assert pieces == list("🙂🙃 naïve €")


def test_the_answer_arrives_while_it_is_decoded(replay):
    stream = replay(ANSWER).stream_rewrite(OLD, "Rename line 5.")
    next(stream)
    assert 0 < stream.stats.tokens < len(ANSWER)


def test_result_needs_no_iteration_and_can_be_taken_again(replay):
    stream = replay("hello").stream(CHAT)
    assert stream.result.text == "hello"
    assert stream.result is stream.result
    assert list(stream) == []


def test_a_cancelled_answer_ends_at_its_next_step(replay):
    stream = replay(ANSWER).stream(CHAT, speculate=False)
    next(stream)
    stream.cancel()
    with pytest.raises(Cancelled):
        next(stream)


def test_a_cancelled_answer_lets_go_of_its_logits(replay, monkeypatch):
    editor = replay(ANSWER)
    extend, made = editor.target.extend, []

    def watched(*arguments, **options):
        logits = extend(*arguments, **options)
        made.append(weakref.ref(logits))
        return logits

    monkeypatch.setattr(editor.target, "extend", watched)
    stream = editor.stream(CHAT, speculate=False)
    next(stream)
    stream.cancel()
    gc.disable()  # in a server it comes too late for what takes 100 MB
    try:
        with pytest.raises(Cancelled):
            next(stream)
        assert [logits() for logits in made] == [None] * len(made)
    finally:
        gc.enable()


@pytest.mark.parametrize("begin", ["stream", "generate", "margin"])
def test_another_request_ends_a_stream(replay, begin):
    editor = replay("a long answer")
    done = editor.generate(CHAT), editor.generate(CHAT, max_new_tokens=2)
    stream = editor.stream(CHAT)
    next(stream)

    if begin == "margin":
        editor.margin(*done)
    else:
        getattr(editor, begin)(CHAT)

    with pytest.raises(SpecEditError, match="began another request; finish one before"):
        next(stream)


# Generating


def test_generate_from_messages_with_a_prediction(replay):
    generation = replay(NEW).generate(CHAT, prediction=OLD)
    assert generation.text == NEW
    assert generation.finish_reason == "stop"
    assert sum(generation.stats.accepted.values()) > 0.9 * len(NEW)  # letters are tokens here


def test_generate_from_token_ids(replay, tokenizer):
    ids = tokenizer("Once upon").input_ids
    generation = replay(" a time").generate(ids)
    assert generation.prompt == ids
    assert generation.text == " a time"


def test_the_answer_begins_after_the_prefill(replay, tokenizer):
    generation = replay("world").generate(CHAT, prefill="hello ")
    assert generation.text == "world"
    assert tokenizer.decode(generation.prompt).endswith("assistant\nhello ")


def test_tools_go_into_the_chat_template(replay, tokenizer, monkeypatch):
    tools = [{"type": "function", "function": {"name": "save"}}]
    with pytest.raises(SpecEditError, match="knows no tools"):
        replay("ok").generate(CHAT, tools=tools)

    monkeypatch.setattr(tokenizer, "chat_template", "{{ tools[0].function.name }}|{{ messages[0].content }}")
    assert tokenizer.decode(replay("ok").generate(CHAT, tools=tools).prompt) == "save|Say it."
    with pytest.raises(SpecEditError, match="holds control tokens"):
        replay("ok").generate(CHAT, tools=[{"type": "function", "function": {"name": "<|im_end|>"}}])


def test_without_a_chat_template_the_messages_are_joined(replay, tokenizer, monkeypatch):
    editor = replay("hello")
    monkeypatch.setattr(tokenizer, "chat_template", None)
    generation = editor.generate([{"role": "system", "content": "Be brief."}, *CHAT], prefill="> ")
    assert tokenizer.decode(generation.prompt) == "Be brief.\n\nSay it.\n\n> "


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize(
    ("stop", "text", "matched"),
    [
        (["line 3"], "line 0\nline 1\nline 2\n", "line 3"),  # inside an accepted block
        (["w 5\nl", "\n\n"], OLD[:35] + "ro", "w 5\nl"),  # from one block into the next
        (["line 4", "e 3"], "line 0\nline 1\nline 2\nlin", "e 3"),  # the first that comes
        (["line 9", "ine 9\nline"], OLD[:35] + "row 5\n" + OLD[42:63], "line 9"),
        (["", "nowhere"], NEW, None),
    ],
)
def test_a_stop_string_cuts_text_tokens_and_counts_alike(replay, speculate, stop, text, matched):
    editor = replay(NEW)
    stream = editor.stream(CHAT, prediction=OLD, stop=stop, speculate=speculate)
    shown = "".join(stream)
    generation = stream.result

    assert shown == generation.text == text
    assert generation.matched_stop == matched
    assert generation.finish_reason == "stop"
    written = len(text) + len(matched or "\0")  # a byte a token; the end of the message is one more
    assert len(generation.tokens) == generation.stats.tokens == written
    assert (generation.stats.accepted_tokens > 0) is speculate


@pytest.mark.parametrize("limit", [1, 2, 3, len(NEW), len(NEW) + 1])
def test_max_new_tokens_is_kept_whatever_is_drafted(replay, limit):
    generation = replay(NEW).generate(CHAT, prediction=NEW, max_new_tokens=limit)
    assert len(generation.tokens) == generation.stats.tokens == limit
    assert generation.text == NEW[:limit]
    assert generation.finish_reason == ("length" if limit <= len(NEW) else "stop")


def test_nothing_is_kept_after_the_end_of_message_in_an_accepted_block(replay, tokenizer):
    said = tokenizer("one two three<|im_end|>four five six").input_ids
    generation = replay(said).generate([*said, *said])
    assert generation.text == "one two three"
    assert generation.tokens == said[:14]
    assert generation.stats.tokens == 14
    assert generation.stats.accepted["ngram"] > 0


@pytest.mark.parametrize("end", ["<|im_end|>", "<|im_start|>"])
def test_control_tokens_in_a_file_are_text(replay, tokenizer, end):
    text = f"stop = '{end}'\nx = 1\n"
    result = replay(f"{text}y = 2\n````").rewrite(text, f"Add y after {end}.")

    assert result.text == f"{text}y = 2\n"
    plain = replay("").rewrite("stop = ''\nx = 1\n", "Add y after .").generation.prompt
    control = tokenizer.convert_tokens_to_ids(end)
    assert result.generation.prompt.count(control) == plain.count(control)
    assert tokenizer.decode(result.generation.prompt).count(end) == plain.count(control) + 2


def test_a_model_that_cannot_be_rolled_back_decodes_plainly_and_says_so_once(replay):
    with pytest.warns(UserWarning, match="replay keeps a state that cannot be rolled back"):
        editor = replay(ANSWER, can_rollback=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = editor.rewrite(OLD, "Rename line 5.")

    assert result.text == NEW
    assert result.stats.drafted.total() == 0


def test_without_proposers_there_is_nothing_to_warn_of(replay):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replay(ANSWER, can_rollback=False, proposers=[]).rewrite(OLD, "Rename line 5.")


# What can be wrong with a request


def test_a_prompt_that_fills_the_context_is_refused(replay):
    with pytest.raises(
        SpecEditError, match=r"The prompt has \d+ tokens and the model's context holds 20: shorten"
    ):
        replay("hello", max_length=20).generate(CHAT)


def test_a_huge_prompt_is_refused_before_it_is_tokenised(replay, monkeypatch):
    editor = replay("hello", max_length=100)
    monkeypatch.setattr("specedit.editor.encode_text", None)
    monkeypatch.setattr("specedit.editor.encode_chat", None)
    with pytest.raises(SpecEditError, match="too long for this model: it has"):
        editor.rewrite("x " * 10_000, "Go.")
    with pytest.raises(SpecEditError, match="too long for this model: it has"):
        editor.generate([{"role": "user", "content": "x " * 10_000}])


def test_threads_do_not_change_control_tokens_for_one_another(tokenizer):
    def text(_):
        return encode_text(tokenizer, "<|im_end|>" * 20)

    def controls(_):
        return encode_raw(tokenizer, "<|im_end|>" * 20)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for call, expected in [(text, 200), (controls, 20)] * 50:
                assert all(len(ids) == expected for ids in pool.map(call, range(8)))
            both = [pool.submit(call, 0) for call in (text, controls) * 200]
            assert [len(future.result()) for future in both] == [200, 20] * 200
    finally:
        sys.setswitchinterval(interval)


def test_the_answer_ends_where_the_context_does(replay, monkeypatch):
    editor = replay(NEW, max_length=40)
    extend, lengths = editor.target.extend, []

    def watched(tokens, *options, **named):
        lengths.append(editor.target.length + len(tokens))
        return extend(tokens, *options, **named)

    monkeypatch.setattr(editor.target, "extend", watched)
    generation = editor.generate(list(range(30)), prediction=NEW, max_new_tokens=1000)

    assert generation.text == NEW[:10]
    assert generation.finish_reason == "length"
    assert max(lengths) <= 40


def test_a_file_whose_answer_cannot_fit_is_refused_before_decoding(replay):
    prompt = len(replay(ANSWER).rewrite(OLD, "Rename line 5.").generation.prompt)
    editor = replay(ANSWER, max_length=prompt + len(OLD))
    with pytest.raises(SpecEditError, match=r"too long for this model.*longer context or a shorter file"):
        editor.rewrite(OLD, "Rename line 5.")
    assert editor.target.length == 0


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (lambda editor: editor.generate([]), "prompt is empty"),
        (lambda editor: editor.generate(CHAT, max_new_tokens=0), "max_new_tokens be 1 or more"),
        (lambda editor: editor.rewrite(OLD, "Go.", max_new_tokens=0), "max_new_tokens be 1 or more"),
        (lambda editor: editor.rewrite(OLD, "Go.", max_new_tokens=-1), "max_new_tokens be 1 or more"),
        (lambda editor: editor.rewrite(OLD, " \n"), "instruction is empty"),
        (lambda editor: editor.rewrite(OLD, "caf\udce9"), "instruction in UTF-8"),
        (lambda editor: editor.rewrite("caf\udce9", "Go."), "half a surrogate pair"),
        (lambda editor: editor.rewrite(Path("missing.py"), "Go."), "no file missing.py"),
        (lambda editor: editor.generate(CHAT, sampling=Sampling(logit_bias={999: 1.0})), "takes token ids"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_in_one_sentence(replay, request_, says):
    with pytest.raises(SpecEditError, match=says):
        request_(replay(ANSWER))


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": -0.1},
        {"temperature": 1e-40},  # logits over it are infinite in float32
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"repetition_penalty": 0.0},
        {"presence_penalty": float("inf")},
        {"frequency_penalty": float("nan")},
        {"logit_bias": {1: float("nan")}},
        {"seed": -1},
    ],
)
def test_settings_out_of_range_are_refused_by_name(setting):
    with pytest.raises(SpecEditError, match=f"{next(iter(setting))} must|must be finite"):
        Sampling(**setting)


def test_an_unknown_proposer_is_refused_before_the_model_is_loaded(replay):
    with pytest.raises(SpecEditError, match=r"no proposer “oracle”: choose from .*ngram, predicted"):
        replay(ANSWER, proposers=["oracle"])
    with pytest.raises(SpecEditError, match="no proposer “oracle”"):
        SpecEditor.from_pretrained("no/such-model", proposers=["oracle"])


# What can be wrong with an answer


def test_an_answer_that_a_limit_cut_is_never_taken(replay, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(OLD)
    result = replay(ANSWER).rewrite(path, "Rename line 5.", max_new_tokens=50)

    assert result.finish_reason == "length"
    for force in (False, True):
        with pytest.raises(Refused, match="cut after 50 tokens: allow more"):
            result.write(force=force)
    assert path.read_text() == OLD


def test_an_answer_that_ends_without_its_closing_fence_is_never_taken(replay):
    result = replay(NEW).rewrite(OLD, "Rename line 5.")
    assert result.finish_reason == "stop"
    with pytest.raises(Refused, match="ended before its code block did"):
        result.require(force=True)


@pytest.mark.parametrize("stop", ["row", "\n", "````"])
def test_an_answer_that_a_stop_string_ended_is_never_taken(replay, stop):
    result = replay(ANSWER).rewrite(OLD, "Rename line 5.", stop=[stop])
    assert result.generation.text == NEW.partition(stop)[0]
    with pytest.raises(Refused, match=r"The answer stopped at '.*', incomplete"):
        result.require(force=True)


def test_an_answer_without_its_stop_string_is_taken(replay):
    replay(ANSWER).rewrite(OLD, "Rename line 5.", stop=["nowhere"]).require()


def test_an_answer_that_the_encoding_cannot_express_is_never_taken(replay, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"5 \xa3\n")
    result = replay("5 €\n````").rewrite(SourceFile.read(path, "latin-1"), "Use euros.")
    for force in (False, True):
        with pytest.raises(Refused, match="cannot express"):
            result.write(force=force)
    assert path.read_bytes() == b"5 \xa3\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("x = 1\n# ... rest of the code unchanged\n```", "stands for code that is left out"),
        ("x = (1\n```", "breaks the python syntax at line 1"),
        ("```", "would empty"),
    ],
)
def test_a_complete_answer_with_a_problem_is_taken_by_force(replay, tmp_path, answer, says):
    path = tmp_path / "a.py"
    path.write_text("x = 1\ny = 2\n")
    result = replay(answer).rewrite(path, "Shorten it.")

    with pytest.raises(Refused, match=says):
        result.write()
    assert path.read_text() == "x = 1\ny = 2\n"

    result.write(force=True)
    assert path.read_text() == answer.rstrip("`")


def test_a_file_that_changed_meanwhile_is_left_as_it_is(replay, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(OLD)
    result = replay(ANSWER).rewrite(path, "Rename line 5.")
    path.write_text("mine\n")

    with pytest.raises(Refused, match="changed on disk meanwhile"):
        result.write(force=True)
    assert path.read_text() == "mine\n"


def test_an_unchanged_answer_has_no_diff(replay):
    result = replay(f"{OLD}````").rewrite(OLD, "Fix it.")
    assert result.text == OLD
    assert result.diff == ""
    result.require()


# Statistics


@pytest.mark.parametrize("speculate", [True, False])
def test_counts_add_up(replay, speculate):
    generation = replay(ANSWER).rewrite(OLD, "Rename line 5.", speculate=speculate).generation
    stats = generation.stats
    report = json.loads(json.dumps(stats.as_dict()))

    assert report["prompt_tokens"] == len(generation.prompt)
    assert report["completion_tokens"] == len(generation.tokens) == sum(report["tokens_by_source"].values())
    assert report["tokens_by_source"]["target"] == stats.tokens - stats.accepted_tokens
    assert stats.accepted_tokens + stats.rejected_tokens == sum(report["drafted_by_proposer"].values())
    assert stats.drafted_at.total() == stats.drafted.total()
    assert stats.accepted_at.total() == stats.accepted.total()
    # Every pass writes one token of the target's own; the first comes with the prompt. A stop string may cut
    # the last pass off before that one.
    assert stats.target_calls <= stats.tokens - stats.accepted_tokens <= stats.target_calls + 1


def test_a_trace_says_where_each_token_came_from(replay, tokenizer):
    trace = replay(NEW).generate(CHAT, prediction=OLD).trace
    assert len(trace.sources) == len(trace.tokens)
    drafted = NEW.index("line 1")
    assert set(trace.sources[drafted : drafted + 20]) <= {"predicted", "structural", "ngram"}
    parted = NEW.index("row 5")
    assert trace.sources[parted] == "target"
    assert ("line 5") in {tokenizer.decode(run.tokens)[:6] for run in trace.rejected if run.at == parted}


def test_likely_tokens_can_be_seen(replay, tokenizer):
    trace = replay("one").generate(CHAT, prediction="one", logprobs=True, top_logprobs=3).trace
    assert [len(top) for top in trace.top_logprobs] == [3] * len(trace.tokens)
    assert tokenizer.decode([top[0][0] for top in trace.top_logprobs[:3]]) == "one"


def test_times_add_up(replay):
    stats = replay(ANSWER).rewrite(OLD, "Rename line 5.").stats
    seconds = stats.as_dict()["seconds"]
    parts = seconds["prefill"] + seconds["draft"] + seconds["verify"] + seconds["coordination"]
    assert seconds["total"] == pytest.approx(parts)
    assert 0 < seconds["first_token"] <= seconds["total"]


def test_what_the_caller_does_between_two_pieces_is_not_counted(replay):
    stream = replay("a b c").stream(CHAT, speculate=False)
    for _ in stream:
        time.sleep(0.1)
    assert stream.stats.total < 0.4


def test_what_an_answer_teaches_about_costs_is_kept(replay, tmp_path):
    target = replay(ANSWER).target
    CostCurve.cached(target, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text(json.dumps({"seconds": [1.0] * 9}))  # as if on a machine that was busy

    editor = replay(ANSWER, cost=CostCurve.cached(target, tmp_path))
    editor.rewrite(OLD, "Rename line 5.", speculate=False)
    assert json.loads(kept.read_text())["seconds"] == [1.0] * 9
    editor.rewrite(OLD, "Rename line 5.")
    assert max(json.loads(kept.read_text())["seconds"]) < 0.9


def test_margin_tells_how_close_the_call_was(replay):
    editor = replay("hello")
    whole, again = editor.generate(CHAT), editor.generate(CHAT)
    cut = editor.generate(CHAT, max_new_tokens=3)
    assert editor.margin(whole, again) is None
    assert editor.margin(whole, cut) == 100.0  # the replay target is that sure of itself


# With a real model


@pytest.fixture(scope="module")
def editor(edit_model):
    return SpecEditor.from_pretrained(str(edit_model), device="cpu", dtype="float32")


@pytest.mark.parametrize("name", ["rename", "placeholder", "syntax", "endless", "crlf", "euro", "same"])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.5, top_p=0.95, presence_penalty=0.5, seed=7)]
)
def test_the_answer_is_the_same_as_without_speculation(editor, edits, name, sampling):
    source = SourceFile.from_text(edits[name].old.decode(edits[name].encoding), edits[name].name)
    fast, plain = (
        editor.rewrite(
            source, edits[name].instruction, sampling=sampling, max_new_tokens=120, speculate=speculate
        )
        for speculate in (True, False)
    )
    assert fast.generation.tokens == plain.generation.tokens
    assert fast.text == plain.text
    if sampling.temperature == 0 and name != "endless":
        assert edits[name].answer.startswith(fast.generation.text)


def test_answers_of_several_threads_are_what_they_are_alone(editor, edits):
    def answer(name):
        edit = edits[name]
        source = SourceFile.from_text(edit.old.decode(edit.encoding), edit.name)
        return editor.rewrite(source, edit.instruction, max_new_tokens=120).text

    names = [*edits] * 2
    alone = [answer(name) for name in names]
    editor.forget()
    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(answer, names)) == alone
    assert editor.rows == 0


def test_the_same_file_again_needs_only_what_is_new(editor, edits):
    edit = edits["rename"]
    editor.forget()
    first, again = (
        editor.rewrite(edit.old.decode(), instruction, name=edit.name, max_new_tokens=20).stats
        for instruction in (edit.instruction, "Do nothing.")
    )
    assert first.cached_tokens == 0
    assert again.cached_tokens > len(edit.old)  # a token a byte
    editor.forget()
    assert editor.kv_bytes == 0


def test_logprobs_stop_with_the_answer(replay):
    count = [{"role": "user", "content": "Count."}]
    options = {"prediction": "one two three", "stop": [" th"]}
    answer = replay("one two three").generate(count, logprobs=True, **options)
    assert answer.logprobs == [0.0] * len(answer.tokens)  # replayed tokens are certain
    assert replay("one two three").generate(count, **options).logprobs == []


def test_a_control_token_is_no_text_of_a_file(replay, tokenizer):
    """It would be written as the letters that it is called by."""
    control = tokenizer.convert_tokens_to_ids("<|im_start|>")
    answer = [*tokenizer("x = 1\n").input_ids, control, *tokenizer("\n````").input_ids]
    answer.append(tokenizer.eos_token_id)
    result = replay(answer).rewrite("x = 2\n", "Fix it.", name="a.py")
    assert "<|im_start|>, which is no text" in result.problems[0].message
    with pytest.raises(Refused):
        result.require(force=True)
