"""The page: a shell that says nothing of the run and asks the endpoints for everything."""

from secrets import token_urlsafe

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from hma.extras import needed
from hma.report.html import template
from hma.serve.replies import SAFE_HEADERS

POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def page(request: Request) -> Response:
    """Return the page, which loads nothing from elsewhere."""
    nonce = token_urlsafe(16)
    jinja = needed("jinja2", "the page")
    ours = jinja.Environment(
        loader=jinja.PackageLoader("hma.serve", "templates"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
    )
    style = template("templates/style.css").render()
    made = ours.get_template("page.html.j2").render(nonce=nonce, shared_style=style)
    headers = {
        "Content-Security-Policy": POLICY.format(nonce),
        "Referrer-Policy": "no-referrer",
        **SAFE_HEADERS,
    }
    return HTMLResponse(made, headers=headers)
