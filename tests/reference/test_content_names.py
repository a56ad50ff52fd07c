"""Names of contents: equal exactly where the whole prefixes are equal."""

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.prefix_words import Prefix
from poolproof.reference.content_names import ContentNames


def test_equal_prefixes_have_equal_names_up_to_where_they_part():
    names = ContentNames()
    one, other = names.of_chain(TokenChain((1, 2, 3))), names.of_chain(TokenChain((1, 2, 4)))
    assert one[:2] == other[:2]
    assert one[2] != other[2]


def test_equal_tokens_behind_another_parent_have_another_name():
    names = ContentNames()
    assert names.of_chain(TokenChain((1, 2)))[1] != names.of_chain(TokenChain((3, 2)))[1]


def test_adapter_path_salt_and_group_are_part_of_the_name():
    names = ContentNames()
    chains = [
        TokenChain((1,)),
        TokenChain((1,), ("x", "0")),
        TokenChain((1,), ("x", "1")),
        TokenChain((1,), None, "x"),
    ]
    found = [names.of_chain(chain)[0] for chain in chains] + [names.of_chain(chains[0], 1)[0]]
    assert len(set(found)) == 5


def test_an_image_counts_from_where_it_lies():
    names = ContentNames()
    plain = names.of_chain(TokenChain((1, 1, 1, 1)))
    shown = names.of_chain(TokenChain((1, 1, 1, 1), images=(Image("p", 1, 2),)))
    other = names.of_chain(TokenChain((1, 1, 1, 1), images=(Image("q", 1, 2),)))
    later = names.of_chain(TokenChain((1, 1, 1, 1), images=(Image("p", 2, 2),)))
    assert plain[0] == shown[0] == other[0]
    assert plain[1] != shown[1] != other[1]
    assert len({plain[3], shown[3], other[3], later[3]}) == 4


def test_behind_an_image_its_tokens_count_alone():
    names = ContentNames()
    short = names.of_chain(TokenChain((1, 1, 1), images=(Image("p", 1, 1),)))
    long = names.of_chain(TokenChain((1, 1, 1), images=(Image("p", 1, 2),)))
    assert short[:2] == long[:2]
    assert short[2] != long[2]


def test_a_group_that_is_not_named_is_the_first():
    names = ContentNames()
    chain = TokenChain((1,))
    assert names.root(chain) == names.root(chain, 0) != names.root(chain, 1)
    assert names.of_chain(chain) == names.of_chain(chain, 0)


def test_a_chain_can_be_extended_piece_by_piece():
    names = ContentNames()
    chain = TokenChain((1, 2, 3, 4), images=(Image("p", 2, 1),))
    whole = names.of_chain(chain)
    head = names.of_chain(TokenChain((1, 2)))
    assert head + names.extended(head[-1], chain, (3, 4), 2) == whole


def test_a_name_tells_its_tokens_and_setting():
    names = ContentNames()
    chain = TokenChain((7, 8, 9), ("x", "0"), "s", (Image("p", 1, 2),))
    content = names.of_chain(chain, 2)[-1]
    assert names.tokens(content) == (7, 8, 9)
    assert names.prefix(content) == Prefix((7, 8, 9), ("x", "0"), "s", (Image("p", 1, 2),), 2)


def test_a_name_tells_the_prefix_without_its_last_token():
    names = ContentNames()
    chain = TokenChain((7, 8))
    one, both = names.of_chain(chain)
    assert (names.parent(both), names.parent(one)) == (one, names.root(chain))


def test_forgotten_names_are_given_out_anew():
    names = ContentNames()
    before = names.of_chain(TokenChain((1, 2)))
    assert len(names) == 3
    names.clear()
    assert len(names) == 0
    assert names.of_chain(TokenChain((1, 2))) == before
