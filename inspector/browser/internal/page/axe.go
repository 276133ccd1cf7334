package page

import (
	_ "embed"
	"strings"

	"github.com/chromedp/cdproto/emulation"
)

//go:embed testdata/axe-core/axe.min.js
var axeScript string

// Axe fails the test for each rule of axe-core that the page breaks with an impact that is serious or
// critical, and names the elements that break it. It works whatever the page's policy allows, and
// without JavaScript too.
func (p *Page) Axe() {
	p.t.Helper()
	if p.opts.NoScript { // axe waits by timers, which do not run then; nor does what the page has left out
		send(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
		defer send(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	}
	var result struct {
		Passed     int
		Violations []struct {
			ID, Impact, Help string
			Nodes            []struct{ Target, HTML, Why string }
		}
	}
	p.Eval("if (!window.axe) {"+axeScript+"\n}", nil)
	p.Eval(`axe.run(document, {iframes: false, preload: false}).then(r => ({
		Passed: r.passes.length,
		Violations: r.violations
			.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => ({ID: v.id, Impact: v.impact, Help: v.help,
				Nodes: v.nodes.map(n => ({Target: n.target.flat().join(" "), HTML: n.html, Why: n.failureSummary}))}))
	}))`, &result)
	if result.Passed == 0 {
		p.t.Error("axe has judged nothing of the page")
	}
	for _, v := range result.Violations {
		var nodes strings.Builder
		for _, n := range v.Nodes {
			nodes.WriteString("\n" + n.Target + "\n  " + n.HTML + "\n  " + strings.ReplaceAll(n.Why, "\n", "\n  "))
		}
		p.t.Errorf("axe: %s (%s): %s%s", v.ID, v.Impact, v.Help, nodes.String())
	}
}
