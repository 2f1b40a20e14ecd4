"""``--help`` of a command with many options: the common ones first, in a panel of their own."""

from typing import Any

from cyclopts import App, ArgumentCollection, Group, Parameter

COMMON = Group("Common options", sort_key=0)


class CommonFirst(App):
    """A command whose help shows some options in a panel above all others.

    Set ``common`` to their names, in the order to show them.
    """

    common: tuple[str, ...] = ()

    def assemble_argument_collection(self, **looks: Any) -> ArgumentCollection:
        """Return the options; for help, the common ones in front and in their own group."""
        found = super().assemble_argument_collection(**looks)
        if not looks.get("parse_docstring"):
            return found
        places = {name: place for place, name in enumerate(self.common)}
        first = []
        for argument in found:
            if argument.name in places:
                argument.parameter = Parameter.combine(argument.parameter, Parameter(group=COMMON))
                first.append(argument)
        first.sort(key=lambda argument: places[argument.name])
        rest = [argument for argument in found if argument.name not in places]
        return ArgumentCollection([*first, *rest])  # type: ignore[no-untyped-call]
