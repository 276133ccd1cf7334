package summaries_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestProblemOf(t *testing.T) {
	for text, want := range map[string]string{
		"told": "", "7": "", "é": "", "": "it is empty", "…\n--": "it has no letter and no digit", "\u3164\u115f\uffa0": "it has no letter and no digit",
	} {
		if got := summaries.ProblemOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := summaries.Clean(" a\x1b\u202eb\tc\nd\xff "); got != "ab\tc\nd\uFFFD" {
		t.Errorf("clean it is %q", got)
	}
	content := testlog.Must(patch.ParseValue([]byte(`{"parts":[{"text":"one "},{"text":"no","thought":true},{"text":" \u0000"},{"text":"two"}]}`)))(t)
	if got := summaries.Text(content); got != "one\ntwo" {
		t.Errorf("the texts are %q", got)
	}
	if got := summaries.Content("told").String(); got != `{"parts":[{"text":"told"}],"role":"user"}` {
		t.Errorf("a summary is %s", got)
	}
}

// CompactionOf reads compaction records in the forms of ADK for Go and ADK for Python.
func TestCompactionOf(t *testing.T) {
	const record = `{"startTimestamp":1.5,"endTimestamp":2,"compactedContent":{"parts":[{"text":"told"}]}}`
	for text, want := range map[string]bool{
		`{"actions":{"compaction":` + record + `}}`: true, `{"customMetadata":{"_adk_compaction":` + record + `}}`: true,
		`{"actions":{"compaction":null}}`: false, `{"customMetadata":{"_adk_compaction":7}}`: false, `{"actions":{"compaction":{"startTimestamp":"x"}}}`: false, `{}`: false,
	} {
		e := testlog.Must(patch.ParseEvent([]byte(text)))(t)
		c, ok := summaries.CompactionOf(e)
		if ok != want || ok && (c.StartTimestamp != 1.5 || summaries.Text(c.CompactedContent) != "told") {
			t.Errorf("%s: %+v, %v", text, c, ok)
		}
		if _, claims := summaries.ClaimOf(e); claims != want {
			t.Errorf("%s claims something: %v", text, claims)
		}
	}
	if _, ok := summaries.CompactionOf(nil); ok {
		t.Error("a nil event has a record")
	}
	var own struct{ Level int }
	if !summaries.DecodeOwnMetadata([]byte(`{"patchlog":{"level":2}}`), &own) || own.Level != 2 || summaries.DecodeOwnMetadata([]byte(`{"patchlog":7}`), &own) {
		t.Errorf("patchlog's metadata is read as %+v", own)
	}
}
