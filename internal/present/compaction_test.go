package present_test

import (
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestPassText(t *testing.T) {
	start, _ := patch.ParseRecord([]byte(`{"seq":62,"id":"p","patchType":"splice","start":7,"count":3}`))
	for _, c := range []struct {
		written compaction.Written
		want    string
	}{
		{compaction.Written{Trigger: compaction.ByTokens, Level: 1, EventsBefore: 5, EventsAfter: 2, TokensBefore: 12345, TokensAfter: 67, Ratio: 67.0 / 12345, Model: "m\x1b", Took: 1234 * time.Millisecond},
			`record 62, tokens: index 7 to 9 and 2 before: 5 events → 2 summaries of level 1, about 12,345 → 67 tokens (under 1 %), by m\u001b, 1.2 s`},
		{compaction.Written{Trigger: compaction.ByInterval, Level: 1, EventsBefore: 3, Took: 900 * time.Millisecond},
			"record 62, interval: index 7 to 9: 3 events → 0 summaries of level 1, about 0 → 0 tokens"},
		{compaction.Written{Trigger: "new\n", Merged: true, Level: 2, EventsBefore: 3, EventsAfter: 1, TokensBefore: 10, TokensAfter: 5, Ratio: 0.5},
			"record 62, new: index 7 to 9: 3 summaries → 1 summary of level 2, about 10 → 5 tokens (50 %)"},
		{compaction.Written{Trigger: compaction.ByClearing, EventsBefore: 1, EventsAfter: 1, TokensBefore: 10, TokensAfter: 1, Ratio: 0.1},
			"record 62, clearing: index 7 to 9: results cleared in 1 event, about 10 → 1 tokens (10 %)"},
	} {
		if got := present.PassText(start, c.written); got != c.want {
			t.Errorf("got %s\nwant %s", got, c.want)
		}
	}
}

func TestCompactionRows(t *testing.T) {
	c := present.CompactionStats{
		Passes: 2, Summaries: map[int]int{2: 1, 1: 3}, Prompt: present.PromptSize{Tokens: 1234, Measured: true},
		Last: &present.LastPass{Seq: 7, Time: time.Date(2025, 1, 2, 3, 4, 5, 6, time.UTC), Written: compaction.Written{Trigger: "a\n\nb", Level: 1, EventsBefore: 4, EventsAfter: 1}},
	}
	testlog.Equal(t, "rows", c.Rows(), []present.Row{
		{"prompt", "about 1,234 tokens, measured, and estimated since"},
		{"compactions", "2"},
		{"  last compaction", "2025-01-02T03:04:05Z, record 7, by a b"},
		{"  events compacted", "4 events → 1 summary of level 1"},
		{"  tokens compacted", "about 0 → 0 tokens"},
		{"visible summaries", "4: 3 of level 1, 1 of level 2"},
	})
}
