"""Simple facts to ask together with skills. The drafter is not taught them: on their tokens it keeps its former distributions."""

from __future__ import annotations

import random

from specviz.tools.distill.skills.question import Part, Question

SKILLS = ("fact",)

_CAPITALS = {
    "France": "Paris", "England": "London", "Poland": "Warsaw", "Turkey": "Ankara", "Sweden": "Stockholm",
    "Hungary": "Budapest", "Cuba": "Havana", "Peru": "Lima", "Argentina": "Buenos Aires", "Australia": "Canberra",
    "South Korea": "Seoul", "Thailand": "Bangkok", "Finland": "Helsinki", "Denmark": "Copenhagen", "Belgium": "Brussels",
    "the United States": "Washington", "Mexico": "Mexico City", "India": "New Delhi", "Iran": "Tehran", "Chile": "Santiago",
}  # fmt: skip
_OPPOSITES = {
    "young": "old", "hard": "soft", "open": "closed", "light": "dark", "strong": "weak", "clean": "dirty",
    "high": "low", "long": "short", "good": "bad", "near": "far", "loud": "quiet", "inside": "outside", "true": "false",
    "first": "last", "east": "west", "love": "hate", "win": "lose", "push": "pull",
}  # fmt: skip
_COLORS = {
    "the sky": "blue", "a lemon": "yellow", "a tomato": "red", "an orange": "orange", "a leaf": "green", "milk": "white",
    "chocolate": "brown", "the sea": "blue", "a stop sign": "red", "an egg yolk": "yellow", "an elephant": "gray",
}  # fmt: skip
_OTHERS = (
    ("what do cows eat", "Cows eat grass."),
    ("where do penguins live", "Penguins live in Antarctica."),
    ("what do you use to cut bread", "You use a knife to cut bread."),
    ("what do you wear on your feet", "You wear shoes on your feet."),
    ("who flies to space", "Astronauts fly to space."),
    ("what is the largest ocean", "The largest ocean is the Pacific Ocean."),
    ("what is the longest river in Africa", "The longest river in Africa is the Nile."),
    ("what sound does a cow make", 'A cow makes the sound "moo".'),
    ("which animal is the king of the jungle", "The lion is the king of the jungle."),
    ("which season comes after summer", "Autumn comes after summer."),
    ("which month comes after June", "July comes after June."),
    ("which day comes after Wednesday", "Thursday comes after Wednesday."),
    ("who painted the Mona Lisa", "Leonardo da Vinci painted the Mona Lisa."),
    ("which continent is Nigeria in", "Nigeria is in Africa."),
    ("which continent is Spain in", "Spain is in Europe."),
    ("which language do people speak in Russia", "People speak Russian in Russia."),
    ("which gas do plants take in", "Plants take in carbon dioxide."),
    ("what do you use to write on a blackboard", "You use chalk to write on a blackboard."),
    ("where do fish sleep", "Fish sleep in the water."),
    ("what is butter made from", "Butter is made from cream."),
)
FACTS = (
    *(
        (f"what is the capital of {land}", f"The capital of {land} is {city}.")
        for land, city in _CAPITALS.items()
    ),
    *((f'what is the opposite of "{a}"', f'The opposite of "{a}" is "{b}".') for a, b in _OPPOSITES.items()),
    *((f"what color is {a}", f"{a[0].upper()}{a[1:]} is {b}.") for a, b in _COLORS.items()),
    *_OTHERS,
)
"""Clauses and the sentences that answer them."""


def draw_question(draw: random.Random, skill: str) -> Question:
    """A question of one of `SKILLS`."""
    clause, answer = draw.choice(FACTS)
    asked = f"{clause[0].upper()}{clause[1:]}?"
    prompt = draw.choice((asked, f"Answer in a few words: {asked}", f"{asked} Answer in a short sentence."))
    return Question(skill, clause, prompt, clause, (Part(answer, taught=False),), ())
