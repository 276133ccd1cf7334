package command

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/terminal"
)

// demoFiles contains demo.txt, the script of the demo, and the files that its commands read.
//
//go:embed demo
var demoFiles embed.FS

func (a *app) demoCommand() *cobra.Command {
	cmd := command(`demo
Show with a real session what patches and compaction do

The demo runs commands as you would type them, on a temporary database. With --json it writes the JSON of these commands.

$ patchlog demo`)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.inTemporary("demo", func(sub *app) error { return sub.demo(cmd.Context()) })
	}
	return cmd
}

// demoTime is the current time in the demo. It is later than all events of the demo.
var demoTime = time.Date(2024, 6, 6, 9, 0, 0, 0, time.UTC)

// demoStep is a command of the demo with its explanation.
type demoStep struct {
	text, line string
	fails      bool // whether the command must fail
}

// demoSteps parses the script. A step consists of an explanation after "# " and a command after "$ ", or after
// "! " if the command must fail.
func demoSteps() []demoStep {
	script, _ := demoFiles.ReadFile("demo/demo.txt")
	var steps []demoStep
	for step := range strings.SplitSeq(strings.TrimPrefix(string(script), "# "), "\n# ") {
		parts := strings.Split(strings.TrimSpace(step), "\n\n")
		mark, line, _ := strings.Cut(parts[1], " ")
		steps = append(steps, demoStep{parts[0], line, mark == "!"})
	}
	return steps
}

// demo runs the commands of the script on an empty database.
func (a *app) demo(ctx context.Context) (err error) {
	a.options.Now = func() time.Time { return demoTime } // a fixed time, so that each run has the same output
	a.env = func(string) string { return "" }            // an environment without an API key, so that no model is called
	for n, step := range demoSteps() {
		if !a.json {
			a.out.Line(a.out.Paint(terminal.Bold, fmt.Sprintf("%d. %s", n+1, step.text)))
			a.out.Line(a.out.Paint(terminal.Green, "$ "+step.line))
		}
		line, file, _ := strings.Cut(step.line, " < ")
		a.stdin = strings.NewReader("")
		if file != "" {
			if a.stdin, err = demoFiles.Open("demo/" + file); err != nil {
				return err
			}
		}
		refusal := a.execute(ctx, strings.Fields(line)[1:])
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case step.fails != (refusal != nil):
			return fmt.Errorf("demo: step %q: unexpected outcome: %v", step.line, refusal)
		case refusal != nil && !a.json:
			a.problem(a.out, refusal.Error())
		}
		if !a.json {
			a.out.Line()
		}
		if err := a.out.Flush(); err != nil {
			return err
		}
	}
	if a.json {
		return nil
	}
	return a.out.Line(demoEnd)
}

// demoEnd is the last text of the demo, which suggests what to do next.
const demoEnd = `Your own sessions: patchlog open ~/.claude/projects
How it looks in a browser: https://github.com/patchlog-dev/patchlog#readme`
