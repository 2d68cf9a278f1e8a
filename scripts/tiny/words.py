"""Word lists, and the people and places made of them."""

from dataclasses import dataclass
from random import Random

GIRLS = """Mia Lena Ada Nora Ella Ruth Vera Iris Clara Tess Zoe Hanna Lily Rosa Emma Anna Sara Ivy June
Maya Olga Petra Dora Greta Ines Kira Luna Nina Paula Wilma Alma Cleo Edith Frida Gwen Heidi Jana Kaya Lotte
Marta""".split()
BOYS = """Tom Ben Finn Otto Leo Max Oscar Hugo Theo Karl Sam Noah Jack Paul Emil Anton Felix Ivan Jonas Luis
Milo Nico Omar Pablo Rafi Simon Tim Victor Walter Yuri Adam Boris Dan Erik Fred Gus Hans Igor Jim
Lars""".split()
PETS = """Rex Pip Bella Coco Daisy Fluff Ginger Hazel Jasper Kiki Lucky Mimi Nemo Olive Pepper Rusty Shadow
Toffee Biscuit Waffle Ziggy Bramble Clover Dusty""".split()
CITIES = """Oslo Paris Rome Lima Cairo Berlin Madrid Vienna Dublin Prague Athens Lisbon Tokyo Delhi Boston
Chicago Quito Nairobi Bergen Malmo Zurich Geneva Turin Porto Seville Warsaw Riga Sofia Hamburg York""".split()
JOBS = """baker farmer teacher doctor painter singer driver nurse gardener carpenter tailor builder fisher
writer cook pilot dancer lawyer plumber judge miner shepherd sailor clerk barber butcher smith guard
waiter librarian""".split()

COLORS = "red blue green yellow white black brown grey pink purple golden silver orange".split()
ANIMALS = "dog cat horse goat rabbit parrot hamster turtle duck goose hen pig sheep cow mouse snake".split()
WILD = "fox bear wolf owl hare badger frog hedgehog squirrel beaver otter deer raven mole".split()
FRUITS = "apple pear plum cherry banana lemon grape peach melon fig orange mango apricot berry".split()
FOODS = "bread soup cake cheese honey porridge pie jam butter rice stew pancakes nuts salad".split()
TOOLS = "hammer saw rope ladder shovel needle brush bucket knife nail drill wrench".split()
THINGS = """kite ball lantern key drum boat book map bell hat basket coat flute mirror ring wagon clock coin
scarf blanket whistle pebble feather spoon""".split()
GOODS = """apples pears plums lemons eggs candles books hats ropes buckets cakes nails brushes bells spoons
baskets pencils carrots onions cups""".split()
TREES = "oak birch pine willow maple elm cedar beech ash spruce".split()
FLOWERS = "rose tulip daisy lily poppy violet iris clover".split()
CLOTHES = "coat shirt scarf hat sock glove boot belt dress shoe cap".split()
PLACES = """forest river hill lake village market garden meadow mill bridge castle harbor cave tower barn
island valley well orchard library""".split()
WEATHER = "sunny rainy windy snowy foggy cloudy cold warm stormy bright".split()
SIZES = "little small big tiny tall old young round".split()
TRAITS = "brave kind clever shy curious lazy honest busy stubborn patient funny polite".split()
DIRECTIONS = "north south east west".split()
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()

MOODS = ("happy", "sad", "angry", "calm", "scared")

ONSETS = "b br c cl d dr f fl g gr h j k kr l m n p pr qu r s st t tr v w y z sh th".split()
VOWELS = "a e i o u ai ea oo ia".split()
CODAS = ["", "", "", "n", "r", "l", "s", "m", "k", "x", "nd", "rt", "th", "ck"]


@dataclass(frozen=True)
class Hero:
    """Somebody in a story, with the pronouns that the story uses."""

    name: str
    kind: str
    they: str
    them: str
    their: str


def coin_name(rng: Random) -> str:
    """Invent a name of two or three syllables: copying must not depend on a list of names."""
    syllables = (rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.choice((1, 2, 2))))
    return ("".join(syllables) + rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)).capitalize()


def person_name(rng: Random) -> str:
    """Name a person: one in four is a name that nobody has heard before."""
    return coin_name(rng) if rng.random() < 0.25 else rng.choice(GIRLS + BOYS)


def hero(rng: Random) -> Hero:
    """Pick a girl, a boy or an animal with a name."""
    female = rng.random() < 0.5
    if rng.random() < 0.3:
        name, kind = rng.choice(PETS), rng.choice(WILD + ANIMALS)
    else:
        name, kind = rng.choice(GIRLS if female else BOYS), "girl" if female else "boy"
    if rng.random() < 0.1:
        name = coin_name(rng)
    return Hero(name, kind, *(("she", "her", "her") if female else ("he", "him", "his")))


def with_article(noun: str) -> str:
    """Put `a` or `an` before a noun."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
