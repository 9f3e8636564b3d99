"""The page at `/`, in a real browser. `apt-get install chromium chromium-driver` brings one."""

import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("there is no Chromium here")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture
def page(browser):
    """page(url): open it; find parts of it by their id."""

    def find(name):
        return browser.find_element(By.ID, name)

    def opened(url):
        browser.get(url)
        return find

    yield opened
    assert [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]] == []


def ask(browser, find, edit):
    """Fill in the form and send it; wait until it says how it went."""
    browser.execute_script("arguments[0].value = arguments[1]", find("text"), edit.old.decode())
    for name, value in (("name", edit.name), ("instruction", edit.instruction)):
        find(name).clear()
        find(name).send_keys(value)
    find("go").click()
    WebDriverWait(browser, 30).until(lambda _: find("status").text not in ("", "writing"))


def test_an_edit_is_shown_token_by_token(browser, page, small, edits):
    edit = edits["rename"]
    find = page(small.url)
    ask(browser, find, edit)
    assert find("status").text == "done"
    assert find("answer").get_property("textContent") == edit.new.decode()
    tokens = find("answer").find_elements(By.TAG_NAME, "span")
    sources = {token.get_attribute("data-source") for token in tokens}
    assert {"target", "structural"} <= sources
    colours = {token.value_of_css_property("background-color") for token in tokens}
    assert len(colours) == len(sources)
    for source in sources:
        assert f"{source}: " in find("legend").text


def test_wrong_guesses_are_shown_where_they_were(browser, page, small, edits):
    find = page(small.url)
    ask(browser, find, edits["rename"])
    marked = find("answer").find_elements(By.CSS_SELECTOR, "[data-rejected]")
    assert marked
    assert "\nnot " in marked[0].get_attribute("title")


def test_the_diff_and_the_gain_are_shown(browser, page, small, edits):
    find = page(small.url)
    ask(browser, find, edits["rename"])
    added = find("diff").find_elements(By.CSS_SELECTOR, ".added")
    assert added[0].text == "+def read_config(path):"
    assert "times as fast" in find("gain").text


def test_problems_and_texts_that_look_like_tags_are_only_text(browser, page, small, edits):
    find = page(small.url)
    ask(browser, find, edits["syntax"])
    assert "breaks the python syntax" in find("problems").text
    find("text").clear()
    find("text").send_keys("<img src=x onerror=document.title='bad'>")
    find("go").click()
    WebDriverWait(browser, 30).until(lambda _: find("status").text not in ("", "writing"))
    assert browser.title == "specedit"


def test_an_answer_can_be_stopped(browser, page, serve, gated, edits):
    served = serve(gated)
    find = page(served.url)
    browser.execute_script("arguments[0].value = 'x = 1'", find("text"))
    find("instruction").send_keys("Go.")
    find("go").click()
    find("stop").click()
    WebDriverWait(browser, 10).until(lambda _: find("status").text == "stopped")
    gated.target.gate.set()
    WebDriverWait(browser, 10).until(lambda _: served.runner.running == 0)


def test_a_key_is_asked_for_where_it_is_needed(browser, page, serve, replay, edits):
    served = serve(replay("x = 2\n```"), api_keys=("secret",))
    find = page(served.url)
    ask(browser, find, edits["rename"])
    assert "API key is missing" in find("status").text
    browser.get_log("browser")  # the 401
    find("key").send_keys("secret")
    ask(browser, find, edits["rename"])
    assert find("status").text == "done"


def test_the_page_needs_nothing_from_elsewhere(page, browser, small):
    page(small.url)
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert loaded == []
