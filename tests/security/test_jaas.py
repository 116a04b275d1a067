"""JAAS texts are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config.jaas import JaasError, LoginModule, parse_jaas, single_module

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="a" password="b";', {"username": "a", "password": "b"}),
        (f"{PLAIN} REQUIRED username=a password='b c';", {"username": "a", "password": "b c"}),
        (f'{PLAIN} Required\n user_al="x;y=z"\n;', {"user_al": "x;y=z"}),
        (
            f'{PLAIN} required a="quo\\"te" b="back\\\\slash" c="tab\\t" d="\\101";',
            {"a": 'quo"te', "b": "back\\slash", "c": "tab\t", "d": "A"},
        ),
        (f'{PLAIN} required a="single \' in double" ;', {"a": "single ' in double"}),
        (f'{PLAIN} required /* a="1" */ b="2" // c="3"\n d="4";', {"b": "2", "d": "4"}),
        (f'{PLAIN} required/\n b="1"\n a="2";', {"a": "2"}),
        (f'{PLAIN} required a="1"a="2";', {"a": "2"}),
        (f'{PLAIN} required "a b"="c";', {"a b": "c"}),
        (f"{PLAIN} required a=x-1.y_$z b=true;", {"a": "x-1.y_$z", "b": "true"}),
        (f'{PLAIN} required user_j\u00f6rg="\u20ac";', {"user_j\u00f6rg": "\u20ac"}),
        (f"{PLAIN} required;", {}),
    ],
)
def test_options_are_those_that_java_reads(text: str, options: dict[str, str]) -> None:
    """A password would be another one than with Kafka, and nobody could log in."""
    assert single_module(text) == LoginModule(PLAIN, "REQUIRED", options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Login module not specified"),
        ("   // nothing", "Login module not specified"),
        (PLAIN, "control flag not specified"),
        (f"{PLAIN} =", "control flag is not available"),
        (f"{PLAIN} must a=secret;", "Invalid login module control flag"),
        (f'{PLAIN} required password="secret"', "not terminated by semi-colon"),
        (f"{PLAIN} required password=1secret;", "Value not specified"),
        (f"{PLAIN} required password=12;", "Value not specified"),
        (f"{PLAIN} required password=;", "Value not specified"),
        (f"{PLAIN} required secret;", "Value not specified"),
        (f"{PLAIN} required a=secret!;", "without a name"),
        (f'{PLAIN} required a="secret;\n', "not terminated by semi-colon"),
        (f"{PLAIN} required; {PLAIN} required a=secret;", "contains 2 login modules"),
    ],
)
def test_what_java_refuses_is_refused_without_its_words(text: str, reason: str) -> None:
    """A typing error would leave a listener without users, or show a password in the log."""
    with pytest.raises(JaasError, match=reason) as caught:
        single_module(text)
    assert "secret" not in str(caught.value)


@given(st.dictionaries(st.text("abcXYZ_", min_size=1), st.text().filter(lambda text: not set(text) & set('\r\n\\"'))))
def test_quoted_options_come_back(options: dict[str, str]) -> None:
    """Some password could not be written down."""
    text = " ".join(f'{key}="{value}"' for key, value in options.items())
    assert single_module(f"{PLAIN} required {text};").options == options


@given(st.text(alphabet=st.sampled_from("aR =;\"'\\/*\n.-19_$") | st.characters()))
def test_any_text_is_read_or_refused(text: str) -> None:
    """A text could hang the start, or end it with an error that nobody understands."""
    try:
        assert parse_jaas(text)
    except JaasError:
        pass


def test_a_module_does_not_show_its_options() -> None:
    """A password would be in a traceback."""
    assert "hidden" not in repr(single_module(f'{PLAIN} required password="hidden";'))
