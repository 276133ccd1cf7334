package page

import (
	"strings"
	"testing"
)

// A page that some readers cannot use fails, with scripts and without, whatever its policy.
func TestAxe(t *testing.T) {
	t.Parallel()
	base := serve(t, strict, map[string]string{"/": document(`<img id="silent" src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">` +
		`<button class="mute"></button>`)})
	for name, opts := range map[string]Options{"desktop": {}, "no script": {NoScript: true}} {
		t.Run(name, func(t *testing.T) {
			mustFail(t, func(t testing.TB) {
				p := Open(t, base, opts)
				p.Go("/")
				p.Axe()
			}, "axe: image-alt (critical): Images must have alternative text\n#silent\n  <img id=\"silent\"", "axe: button-name (critical)")
		})
	}
}

// Colours are judged as they are shown, in the scheme that the reader prefers.
func TestAxeSeesColours(t *testing.T) {
	t.Parallel()
	style := `<link rel="stylesheet" href="/style.css">`
	base := serve(t, "", map[string]string{"/": strings.Replace(document(`<p>Words</p>`), "</head>", style+"</head>", 1),
		"/style.css": `:root { color-scheme: light dark } @media (prefers-color-scheme: dark) { p { color: #444; background: #333 } }`})
	light := Open(t, base, Options{})
	light.Go("/")
	light.Axe()
	mustFail(t, func(t testing.TB) {
		p := Open(t, base, Options{Dark: true})
		p.Go("/")
		p.Axe()
	}, "axe: color-contrast (serious)")
}
