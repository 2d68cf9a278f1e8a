"""What llguidance reads in the rules of a bag is what the bag says, over all short texts."""

from itertools import product

from llguidance import LLMatcher, LLTokenizer

from processors.grammar.json_grammars import Bag, Brackets, in_a_row, spelled

SIGNS = 'COMMA: ","\nBEGIN: "["\nEND: "]"\nNO_ITEMS: "[]"\n'
LIST = Brackets("BEGIN", "END", "NO_ITEMS")


def accepting(rules):
    text = "start: r\n" + SIGNS + "".join(f"{name}: {body}\n" for name, body in rules.items())
    start = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_lark(text), log_level=0)
    assert not start.is_error(), start.get_error()

    def accept(members):
        matcher, data = start.deep_copy(), list(f"[{','.join(members)}]".encode())
        return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()

    return accept


def symbols(letters):
    return tuple(f'"{letter}"' for letter in letters)


def is_in(bag, members):
    """Whether the members are one of a bag's texts, by their number and that of each."""
    needed, once, many = ([symbol.strip('"') for symbol in part] for part in (bag.needed, bag.once, bag.many))
    counts = {letter: members.count(letter) for letter in {*needed, *once, *many}}
    return (
        bag.least <= len(members) <= (len(members) if bag.most is None else bag.most)
        and all(
            counts[letter] >= needed.count(letter)
            if letter in many
            else counts[letter] == needed.count(letter)
            for letter in needed
        )
        and all(counts[letter] <= 1 for letter in once)
    )


BAGS = [
    Bag(needed=symbols("ab"), once=symbols("cd")),
    Bag(needed=symbols("a"), many=symbols("b")),
    Bag(once=symbols("abc"), least=1, most=2),
    Bag(needed=symbols("a"), once=symbols("bc"), least=2),
    Bag(needed=symbols("ab"), once=symbols("c"), most=2),
    Bag(many=symbols("ab"), least=2, most=4),
    Bag(once=symbols("ab"), many=symbols("c"), least=2, most=3),
    Bag(needed=symbols("a"), once=symbols("b"), many=symbols("c"), least=3, most=4),
    Bag(needed=symbols("aa"), many=symbols("b"), least=3, most=5),
    Bag(needed=symbols("aaa"), many=symbols("ab"), most=4),
]


def test_a_bag_has_the_texts_that_it_says():
    for bag in BAGS:
        accept = accepting(spelled(bag, LIST, "r"))
        letters = sorted({symbol.strip('"') for symbol in (*bag.needed, *bag.once, *bag.many)})
        for count in range(6):
            for members in product(letters, repeat=count):
                assert accept(members) == is_in(bag, members), (bag, members)


def test_a_row_keeps_its_order():
    for many, needed in product(("", "x", "xy"), ("", "a", "bc", "abc")):
        accept = accepting(in_a_row([(f'"{one}"', one in needed) for one in "abc"], symbols(many), LIST, "r"))
        for count in range(5):
            for members in product(f"abc{many}", repeat=count):
                head = [one for one in members if one in "abc"]
                is_row = head == sorted(set(head)) and list(members[: len(head)]) == head
                assert accept(members) == (is_row and set(needed) <= set(head)), (many, needed, members)
