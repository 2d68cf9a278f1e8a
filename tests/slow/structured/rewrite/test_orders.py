"""With `any` properties come in any order; required ones have to, none comes twice."""

from gencli.structured.choose import choose
from tests.structured.rewrite.test_orders import INNER, OBJECT, PROPERTIES


def test_many_small_objects_do_not_grow_without_bound():
    large = {
        f"o{n}": {**OBJECT, "title": str(n), "properties": {**PROPERTIES, f"p{n}": {}}} for n in range(300)
    }
    few = {f"o{n}": {**INNER, "required": [], "properties": {f"x{n}": {}, "y": {}}} for n in range(2_000)}
    for properties in (large, few):
        plan = choose({"type": "object", "properties": properties}, any_order=True)
        assert all(len(variant.constraint.text) < 1 << 20 for variant in plan.variants)
