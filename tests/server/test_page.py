"""The page at / in a real browser: the text streams in, each piece with the colour and the shape of its origin.

Skipped where there is no Chromium; with COURSE_NEEDS_BROWSER set, as in CI, that is a failure.
"""

import os
import re
import threading
from contextlib import ExitStack

import pytest
import torch

import spec_lib as sl
from spec_lib import plots
from tests.helpers.browser import MEASURES, browsing, missing
from tests.helpers.models import tiny_gpt2
from tests.helpers.served import Scripted, serving, until
from tests.helpers.tokenizers import tokenizer_of
from tests.server.test_completions import alone

ONCE, A = "Once upon a time", tokenizer_of()("a")["input_ids"]


@pytest.fixture(scope="module")
def pair():
    return sl.load_pair("tiny", dtype=torch.float64).fast()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    give_up = pytest.fail if os.environ.get("COURSE_NEEDS_BROWSER") else pytest.skip
    if lacking := missing():
        give_up(f"no browser test of the page: {lacking}")
    from selenium.common import WebDriverException

    with ExitStack() as stack:
        try:
            driver = stack.enter_context(browsing(tmp_path_factory.mktemp("browser")))
        except WebDriverException as error:
            give_up(f"no browser test of the page: the browser does not start ({error.msg})")
        yield driver


class Shown:
    """The page of a server, open, and what a reader does there."""

    def __init__(self, driver, server):
        self.driver = driver
        driver.get(server.url)
        until(lambda: self.at("write").is_enabled(), "the page does not load")

    def at(self, id: str):
        return self.driver.find_element("id", id)

    def write(self, **fields: str) -> None:
        for id, value in fields.items():
            self.at(id).clear()
            self.at(id).send_keys(value)
        self.at("write").click()

    def pieces(self) -> list[list[str]]:
        """[text, class, title] of each piece."""
        script = 'return [...document.querySelectorAll("#text > span")].map(e => [e.textContent, e.className, e.title])'
        return self.driver.execute_script(script)

    def text(self) -> str:
        return "".join(text for text, name, _ in self.pieces() if name != "prompt")

    def said(self, words: str) -> str:
        return until(lambda: self.at("numbers").text if words in self.at("numbers").text else "", f"{words}: not said")

    def theme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def problems(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def server(pair):
    with serving(pair) as server:
        yield server


def test_the_text_streams_in_with_its_origins_and_its_acceptance_rate(driver, server, pair, tmp_path):
    page = Shown(driver, server)
    page.write(prompt=ONCE, temperature="0.8", max_tokens="90", seed="7")
    said = page.said("Done")
    want, g = alone(pair, ONCE, 90, 7, temperature=0.8)
    s = sl.summarize(g)
    assert page.text() == want
    assert f"90 tokens, acceptance rate {s.alpha:.2f} ({s.accepted} accepted, {s.rejected} rejected)" in said
    pieces = page.pieces()
    assert pieces[0][:2] == [ONCE, "prompt"]
    assert [name for _, name, _ in pieces[1:]] == plots.origins(g.rounds)
    assert all(title == plots.MEANING[name] for _, name, title in pieces[1:])
    assert page.at("write").is_enabled() and not page.at("stop").is_enabled()
    assert page.problems() == []
    page.at("text").screenshot(str(tmp_path / "text.png"))


def test_origins_are_told_apart_without_colour(driver, server):
    page = Shown(driver, server)
    page.write(prompt=ONCE, temperature="1", max_tokens="60", seed="1")
    page.said("Done")
    script = """
    const shape = name => {
      const style = getComputedStyle(document.querySelector(`#text .${name}`));
      return [style.borderBottomStyle, style.fontStyle, style.fontWeight];
    };
    return ["accepted", "resampled", "bonus"].map(shape);
    """
    accepted, resampled, bonus = driver.execute_script(script)
    assert accepted == ["solid", "normal", "400"] and resampled == ["double", "normal", "700"]
    assert bonus == ["dotted", "italic", "400"]
    legend = [item.text for item in driver.find_elements("css selector", "#legend li")]
    assert legend == [f"{name} ({plots.SHAPE[name]}): {plots.MEANING[name]}" for name in plots.MEANING]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_stands_out(driver, server, theme):
    """The contrast of all text is at least 4.5, as WCAG 2 asks (AA), in both themes."""
    page = Shown(driver, server)
    page.theme(theme)
    page.write(prompt=ONCE, temperature="1", max_tokens="60", seed="1")
    page.said("Done")
    driver.execute_script("document.documentElement.style.background = 'Canvas'")  # what the browser paints, told to us
    found = driver.execute_script(
        MEASURES + "return [contrasts(document.body), wide(document.body), light(ground(document.body))]"
    )
    texts, wide, ground = found
    assert (ground < 0.2) == (theme == "dark")
    assert (
        len(texts) > 40 and not [[text, ratio] for text, ratio in texts if ratio < 4.5 and text != "Stop"] and not wide
    )
    page.theme("light")  # (a button that cannot be pressed may be faint)


def test_what_a_model_writes_is_text_and_never_html(driver):
    said = '<img src=x onerror="document.title=1"><script>document.title=2</script>\x1b[2J\u202egnp.exe & \U0001f409'
    tokenizer = tokenizer_of(eos_token="<|endoftext|>")
    ids = tokenizer(said)["input_ids"]
    pair = sl.Pair(tiny_gpt2(0, vocab=258, context=200), tiny_gpt2(1, vocab=258), tokenizer)
    with serving(pair, engine=lambda: Scripted(ids)) as server:
        page = Shown(driver, server)
        title = driver.title
        page.write(prompt="<b>bold</b>", max_tokens=str(len(ids)))
        page.said("Done")
        assert page.text() == said.replace("\x1b", "U+001B").replace("\u202e", "U+202E")
        assert page.pieces()[0][0] == "<b>bold</b>"
        assert driver.title == title
        assert driver.execute_script('return document.querySelectorAll("#text :not(span)").length') == 0


def test_the_text_comes_in_pieces_and_can_be_stopped(driver):
    """While it is written the pieces are there; the button stops it here and in the server."""
    go, tokenizer = threading.Event(), tokenizer_of(eos_token="<|endoftext|>")
    pair = sl.Pair(tiny_gpt2(0, vocab=258, context=2000), tiny_gpt2(1, vocab=258), tokenizer)
    with serving(pair, engine=lambda: Scripted(A * 1900, 2, turn=lambda: go.wait(0.1))) as server:
        page = Shown(driver, server)
        page.write(prompt="a", max_tokens="1900")
        until(lambda: 6 < len(page.text()) < 1900, "no piece is shown")
        assert "acceptance rate 0." in page.at("numbers").text and page.at("stop").is_enabled()
        page.at("stop").click()
        page.said("Stopped")
        until(lambda: server.counted("request_success_total", finished_reason="abort") == 1, "the server writes on")
        assert len(page.text()) < 1900 and page.at("write").is_enabled()
        go.set()
        page.write(prompt="b", max_tokens="20")  # and it writes again
        page.said("Done")
        assert page.text() == "a" * 20


def test_a_rule_that_has_no_acceptance_rate_is_shown_none(driver, pair):
    from spec_lib.batch import Engine

    with serving(pair, engine=lambda: Engine(pair.target, pair.draft, rule="block")) as server:
        page = Shown(driver, server)
        page.write(prompt=ONCE, max_tokens="30")
        said = page.said("Done")
        assert "no acceptance rate" in said and re.match(r"30 tokens, \d+ accepted", said)
        usage = server.post(prompt=ONCE, max_tokens=30)[1]["usage"]
        assert usage["completion_tokens_details"]["rejected_prediction_tokens"] is None
        assert server.counted("spec_decode_num_rejected_tokens_total") == 0


def test_errors_are_shown(driver, server):
    page = Shown(driver, server)
    page.write(prompt=ONCE, max_tokens="5000")
    assert "context" not in page.said("positions") and "1024" in page.at("numbers").text
    page.write(max_tokens="5", seed="99999999999999999999999")
    page.said("seed must be")
    page.write(seed="18446744073709551615")  # more than a number of JavaScript can hold
    page.said("5 tokens")
    assert page.problems() == [] or all("400" in message for message in page.problems())


def test_an_answer_that_breaks_off_is_said_to(driver):
    """An engine that fails after two rounds: an error event, which the page shows."""
    made = []

    def engine():
        def turn():
            if len(made) == 1 and made[0].rows and len(made[0].rows[0].rounds) == 2:
                raise RuntimeError("the device is lost")

        made.append(Scripted(A * 50, 2, turn=turn))
        return made[-1]

    tokenizer = tokenizer_of(eos_token="<|endoftext|>")
    pair = sl.Pair(tiny_gpt2(0, vocab=258), tiny_gpt2(1, vocab=258), tokenizer)
    with serving(pair, engine=engine) as server:
        page = Shown(driver, server)
        page.write(prompt="a", max_tokens="40")
        page.said("the engine failed")
        assert page.text() == "aaaa" and "error" in page.at("numbers").get_attribute("class")
