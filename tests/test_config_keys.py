"""No setting of a command lies there unread: the code or another setting names it."""

import re

from test_size import CONF, ROOT, leaves, read


def test_every_setting_is_read():
    files = [*CONF.rglob("*.yaml"), *(ROOT / "src").rglob("*.py")]
    named = set(re.findall(r"""[.{"'](\w+)""", "".join(path.read_text() for path in files)))
    for command in CONF.glob("*.yaml"):
        assert {part for key in leaves(read(command)) for part in key.split(".")} <= named, command.stem
