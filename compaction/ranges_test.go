package compaction_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/patch"
)

// A reader that goes by ADK's rule, by times, hides nothing that is visible: a summary
// claims what it stands for and names what lies between.
func TestRangeOfASummary(t *testing.T) {
	for _, row := range []struct {
		name, log string
		cfg       compaction.Config
	}{
		{"an overlap", "u1 a1 u2 a2 u3 a3 u4 a4", every(2, 1, nil)},
		{"an open call in between", "u1 a1 c2(x) u3 a3 u4 a4", every(2, 1, nil)},
		{"a late answer goes with its call", "u1 l1(x) u2 c2(y) R3(x) u4 a4", with(every(2, 0, nil), func(c *compaction.Config) { c.Limits().OpenCalls = 9 })},
		{"branches", "u1 A/a1 u2 A/a2 c3(x) A/a3 u4", every(2, 1, nil)},
		{"merged", "u1 c1(x) u2 u3 u4 u5 u6 u7 u8", with(every(1, 1, nil), func(c *compaction.Config) { c.Limits().Summaries = 2 })},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSession(t, "")
			row.cfg.Summarizer = &scripted{}
			for _, w := range strings.Fields(row.log) {
				s.append(w)
				s.compact(row.cfg)
			}
			v := s.view()
			shown := adkrecord.FilterEventsForLLM(events(v))
			for i, e := range v.Events() {
				if v.Entry(i).Summary {
					continue
				}
				if !slices.ContainsFunc(shown, func(o *patch.Event) bool { return o.ID() == e.ID() }) {
					t.Errorf("%s is hidden by the range of a summary: %s", e.ID(), words(v))
				}
			}
		})
	}
}
