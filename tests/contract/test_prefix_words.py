"""Two prefixes never read alike: what they differ in is in their words, or is said beside them."""

from dataclasses import replace
from itertools import combinations

import pytest

from poolproof.contract.content import ContentKey, Image, TokenChain
from poolproof.contract.prefix_words import Prefix, listed, shortened
from poolproof.reference.content_names import ContentNames

TOKENS = tuple(range(5))
LONG = tuple(range(100))
PLAIN = Prefix(TOKENS)
CAT = Image("cat", 1, 2)

ALONE = [
    (PLAIN, replace(PLAIN, salt="x"), "only the salt differs"),
    (replace(PLAIN, salt=""), PLAIN, "only the salt differs"),
    (replace(PLAIN, salt="x"), replace(PLAIN, salt="y"), "only the salt differs"),
    (PLAIN, replace(PLAIN, lora=("a", "/a")), "only the adapter differs"),
    (replace(PLAIN, lora=("a", "/a")), replace(PLAIN, lora=("a", "/b")),
     "only the adapter differs"),
    (PLAIN, replace(PLAIN, images=(CAT,)), "only an image differs"),
    (replace(PLAIN, images=(Image("dog", 1, 2),)), replace(PLAIN, images=(CAT,)),
     "only the images differ"),
    (replace(PLAIN, images=(Image("cat", 2, 2),)), replace(PLAIN, images=(CAT,)),
     "only the images differ"),
    (replace(PLAIN, images=(Image("cat", 1, 3),)), replace(PLAIN, images=(CAT,)),
     "only the images differ"),
    (PLAIN, replace(PLAIN, group=1), "only the cache group differs"),
    (PLAIN, replace(PLAIN, group=1, salt="x"), "only the salt and the cache group differ"),
    (PLAIN, replace(PLAIN, weights="before a reset"), "only the weights differ"),
    (PLAIN, replace(PLAIN, salt="x", weights="before a reset"),
     "only the salt and the weights differ"),
    (Prefix(LONG), Prefix((*LONG[:50], 7, *LONG[51:])),
     "the tokens differ from position 50 on (50 against 7)"),
    (Prefix((0,) * 50), Prefix((0,) * 49), "the one is 50 tokens long and the other 49"),
]  # fmt: skip
TOGETHER = [
    (replace(PLAIN, salt="x"), Prefix((0, 7)),
     "the tokens differ from position 1 on (1 against 7), and so does the salt"),
    (replace(PLAIN, salt="x", images=(CAT,)), Prefix((0, 1, 7), images=(Image("cat", 1, 1),)),
     "the tokens differ from position 2 on (2 against 7), and so do the salt and the images"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "words"), [*ALONE, *TOGETHER])
def test_what_differs_is_named(one, other, words):
    assert one.difference_from(other) == words


@pytest.mark.parametrize("other", [(0,), (0, 1, 2, 3, 9), (9,), TOKENS[:4]])
def test_other_tokens_that_can_be_seen_need_no_words(other):
    assert PLAIN.difference_from(Prefix(other)) == ""
    assert PLAIN.words() != Prefix(other).words()


def test_an_image_that_one_of_two_prefixes_does_not_reach_is_no_difference():
    assert replace(PLAIN, images=(Image("cat", 3, 1),)).difference_from(Prefix(TOKENS[:2])) == ""


def test_the_same_prefix_differs_in_nothing():
    assert PLAIN.difference_from(PLAIN) == ""


def test_a_prefix_reads_with_all_that_changes_its_kv():
    prefix = Prefix((1, 2, 3), ("a", "/a"), "x", (Image("cat", 0, 2), Image("dog", 2, 1)))
    assert prefix.words() == (
        "1 2 3, lora a at /a, salt x, image cat at tokens 0-1, image dog at token 2"
    )
    assert Prefix((1,), salt="").words() == "1, salt ''"
    assert Prefix((1,), weights="before a reset").words() == "1, weights before a reset"


def test_a_content_key_reads_as_its_prefix():
    key = ContentKey((1, 2), None, None, (("cat", 1),), 1)
    assert Prefix.of_key(key).words() == "1 2, image cat at token 1"
    assert Prefix.of_key(key).difference_from(Prefix((1, 2), images=(), group=1)) == (
        "only an image differs"
    )


CHAINS = [
    TokenChain(tokens, lora, salt, images, weights)
    for tokens in (TOKENS, (0, 1, 9, 3, 4), LONG, (*LONG[:40], 7, *LONG[41:]))
    for lora in (None, ("a", "/a"), ("a", "/b"))
    for salt in (None, "x")
    for weights in (None, "before a reset")
    for images in ((), (CAT,), (Image("dog", 1, 2),), (Image("cat", 1, 3),), (Image("cat", 0, 2),))
]


def test_prefixes_with_other_names_never_read_alike():
    names = ContentNames()
    prefixes = [
        names.prefix(names.of_chain(chain, group)[-1]) for chain in CHAINS for group in (0, 1)
    ]
    assert len(set(prefixes)) == len(prefixes)
    for one, other in combinations(prefixes, 2):
        assert one.difference_from(other) or one.words() != other.words()


def test_a_name_tells_images_as_far_as_its_prefix_reaches():
    names = ContentNames()
    contents = names.of_chain(TokenChain((1, 2, 3), ("a", "/a"), "x", (Image("cat", 1, 2),)), 1)
    shown = [names.prefix(content).images for content in contents]
    assert shown == [(), (Image("cat", 1, 1),), (Image("cat", 1, 2),)]
    assert names.prefix(contents[0]) == Prefix((1,), ("a", "/a"), "x", (), 1)


def test_a_long_list_is_shortened():
    assert listed(range(12)) == str(list(range(12)))
    assert listed(range(4096)) == "[0, 1, 2, 3, ... (4,096 in all) ..., 4092, 4093, 4094, 4095]"
    assert len(shortened(range(13), "tokens")) == 9
