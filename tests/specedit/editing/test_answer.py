import pytest

from specedit.editing import Extracted, build_prompt, closing_stop, extract


def chat(answer, language="python"):
    return extract(answer, opened=False, language=language)


class TestAfterThePrefill:
    def test_the_code_ends_at_the_fence(self):
        assert extract("x = 1\n```\nThat is all.", "```") == Extracted("x = 1\n", closed=True)

    @pytest.mark.parametrize("fence", ["```", "   ```", "```  ", "`````", "```\r"])
    def test_what_closes(self, fence):
        assert extract(f"x\n{fence}", "```") == Extracted("x\n", closed=True)

    @pytest.mark.parametrize("line", ["    ```", "``", "~~~", "x ```", "```a```"])
    def test_what_does_not_close(self, line):
        assert extract(f"x\n{line}\ny", "```") == Extracted(f"x\n{line}\ny", closed=False)

    def test_a_shorter_fence_is_part_of_the_file(self):
        answer = '"""\n```\nf()\n```\n"""\n'
        assert extract(answer + "````\n", "````") == Extracted(answer, closed=True)

    def test_a_block_that_the_edit_adds_is_part_of_the_file(self):
        answer = '"""\n```bash\nrun\n```\n"""\n'
        assert extract(answer + "```", "```") == Extracted(answer, closed=True)

    def test_an_answer_cut_short(self):
        assert extract("def f():\n    ret", "```") == Extracted("def f():\n    ret", closed=False)

    def test_an_answer_cut_inside_a_block_that_the_edit_adds(self):
        assert not extract('"""\n```bash\nrun\n```\n', "```").closed

    def test_an_empty_file(self):
        assert extract("```", "```") == Extracted("", closed=True)

    def test_an_answer_with_crlf(self):
        assert extract("a\r\nb\r\n```\r\n", "```") == Extracted("a\nb\n", closed=True)

    @pytest.mark.parametrize("text", ["x\n", "# T\n```sh\nrun\n```\n", "~~~\n````\n~~~\n", "\n\n"])
    def test_the_file_itself_comes_back(self, text):
        prompt = build_prompt(text, "edit", "README.md")
        answer = text + prompt.fence + "\n"
        assert extract(answer, prompt.fence).text == text
        assert answer.endswith(closing_stop(prompt.fence))


class TestChat:
    def test_prose_around_the_code(self):
        answer = "Sure, here it is:\n\n```python\nx = 1\n```\n\nHope it helps."
        assert chat(answer) == Extracted("x = 1\n", closed=True)

    @pytest.mark.parametrize(
        ("info", "language"),
        [
            ("c++", "cpp"),
            ('python title="x.py"', "python"),
            ("py", "python"),
            ("{.python}", "python"),
            ("src/app.py", "python"),
            ("c#", "csharp"),
            ("  js  ", "javascript"),
        ],
    )
    def test_info_strings(self, info, language):
        answer = f"```sh\nmake everything anew\n```\n```{info}\nx\n```"
        assert chat(answer, language) == Extracted("x\n", closed=True)

    def test_tildes(self):
        assert chat("~~~python\n```\nx\n~~~") == Extracted("```\nx\n", closed=True)

    def test_shorter_fences_inside(self):
        assert chat("````markdown\n```sh\nrun\n```\n````", "markdown") == Extracted(
            "```sh\nrun\n```\n", closed=True
        )

    def test_of_several_blocks_the_largest_in_the_language(self):
        answer = "```python\nx = 1\n```\n```python\nx = 1\ny = 2\n```\n```sh\nmake a very large thing\n```"
        assert chat(answer).text == "x = 1\ny = 2\n"

    def test_of_several_unnamed_blocks_the_largest(self):
        assert chat("```\na\n```\nand\n```\nb\nc\n```").text == "b\nc\n"

    def test_bare_fences_in_a_docstring(self):
        code = '"""Use:\n\n```\nf()\n```\n"""\nx = 1\n'
        assert chat(f"```python\n{code}```\nDone.") == Extracted(code, closed=True)

    def test_bare_fences_in_markdown(self):
        text = "# T\n\n```\npip install\n```\n\nMore.\n"
        assert chat(f"```markdown\n{text}```\nDone.", "markdown") == Extracted(text, closed=True)

    @pytest.mark.parametrize("language", ["python", "javascript", "yaml"])
    def test_a_bare_block_after_the_code_is_not_code(self, language):
        answer = f"```{language}\na\n```\nRun it:\n```\nmake\n```"
        assert chat(answer, language) == Extracted("a\n", closed=True)

    def test_a_block_in_a_list(self):
        assert chat("1. Do:\n   ```python\n   if x:\n       y()\n   ```") == Extracted(
            "if x:\n    y()\n", closed=True
        )

    def test_no_fence(self):
        assert chat("x = 1\n") == Extracted("x = 1\n", closed=True)

    def test_an_answer_cut_short(self):
        assert chat("Here:\n```python\nx = 1\ny =") == Extracted("x = 1\ny =", closed=False)

    def test_nothing(self):
        assert chat("") == Extracted("", closed=True)
