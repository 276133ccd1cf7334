package command

import (
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// showPlan says what would be summarised next.
func (a *app) showPlan(key store.Key, d compaction.Decision) error {
	plan := present.PlanOf(key, d)
	if a.json {
		return a.out.document(plan)
	}
	a.out.linef("%s: %s", key, d.Reason)
	if err := a.out.rows(plan.Rows()); err != nil {
		return err
	}
	if plan.Window == nil {
		return nil
	}
	return a.out.line(plan.Outlook())
}
