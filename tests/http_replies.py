"""What tests of the server share."""

JSON = {"content-type": "application/json"}


def line_of(reply, status):
    """The one line of a refusal."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    (line,) = reply.json().values()
    assert "\n" not in line
    return line
