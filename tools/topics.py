"""What the training prompts and the held-out ones ask about; no topic is in both."""

from __future__ import annotations

TEMPLATES = (
    "Write a short paragraph about {}.",
    "Explain {} to a child in a few sentences.",
    "List three facts about {}.",
    "Why is {} important? Answer briefly.",
    "Tell me a short story about {}.",
    "What should I know about {}?",
)

_TRAINING = """the sea, bicycles, copper, France, the Moon, photosynthesis, bread, chess, volcanoes, the internet, honey bees,
    trains, coffee, gravity, the human heart, music, rivers, the Roman Empire, elephants, clocks, rice, snow,
    electricity, libraries, dolphins, the alphabet, glass, Japan, mathematics, forests, the telephone, cheese, the Sun,
    horses, paper, the brain, cotton, deserts, airplanes, money, tea, fire, the Renaissance, wolves, computers, sugar,
    earthquakes, dance, Egypt, vaccines, steel, friendship, whales, football, the printing press, potatoes, glaciers,
    batteries, owls, democracy, soap, Brazil, the eye, poetry, bridges, salt, ants, the calendar, rubber, India, sleep,
    painting, magnets, wheat, spiders, the steam engine, lakes, law, apples, radio, penguins, the skeleton, gold,
    Canada, theater, ships, tomatoes, planets, farming, cats, algebra, wood, storms, maps, trust, robots, oranges,
    the stomach, teachers, sheep, silver, China, hospitals, tides, kites, cooking, oil, dogs, the atom,
    newspapers"""

_HELD_OUT = """bears, lightning, Italy, the violin, chocolate, DNA, castles, the Arctic, swimming, diamonds, kindness, rockets,
    butterflies, the lungs, milk, Mexico, statistics, mountains, cars, mushrooms, silk, comets, gardens,
    photography"""


TRAINING = tuple(topic.strip() for topic in _TRAINING.split(","))
HELD_OUT = tuple(topic.strip() for topic in _HELD_OUT.split(","))


def questions(topics: tuple[str, ...], each: int) -> list[tuple[str, str]]:
    """(topic, question) pairs, `each` templates a topic and every template as often as the others."""
    step = len(TEMPLATES) // each
    return [
        (topic, TEMPLATES[(number + step * turn) % len(TEMPLATES)].format(topic))
        for turn in range(each)
        for number, topic in enumerate(topics)
    ]
