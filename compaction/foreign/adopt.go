package foreign

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Adoption is how the compaction records of a foreign log become summaries.
type Adoption struct {
	// Patches put a summary in the place of what each record stands for, and cut the
	// record. They are to be applied in one go, in their order, to the view that they
	// were made from.
	Patches []*patch.PatchEvent

	// Adopted are the ids of the records that the patches take over.
	Adopted []string

	// Left are the records that stay as they are.
	Left []LeftRecord
}

// LeftRecord is a compaction record that cannot be adopted.
type LeftRecord struct {
	EventID string
	Reason  string
}

// Adopt plans how the compaction records in a view's visible log, such as ADK writes
// (see [IsCompactionEvent]), become summaries: for each, the visible raw events before it
// whose times lie in its range are summarised by its compacted content, under a new id,
// and the record is cut; both keep the state. Summaries of earlier records whose ranges lie
// in a record's go with the events. A record whose events do not stand side by
// side, or of which nothing is left, or whose summary would split a function call from
// its response, is left as it is, with the reason. Summaries that say their [compaction.Lineage]
// are no records.
func Adopt(v fold.View) Adoption {
	var out Adoption
	base := v.PatchSeq()
	for _, id := range records(v) {
		v = out.add(v, id, base, uuid.NewString)
	}
	return out
}

// AdoptRecord plans as [Adopt] does for the visible event with that id alone, which may be
// no record: then there is nothing to do. newID gives the ids that are needed, in an order
// that the view alone decides; they are not to be in the log.
func AdoptRecord(v fold.View, id string, newID func() string) Adoption {
	var out Adoption
	if at, ok := v.Find(id); ok && isRecord(v.At(at)) {
		out.add(v, id, v.PatchSeq(), newID)
	}
	return out
}

// add plans for one record, and returns the view after that.
func (a *Adoption) add(v fold.View, id string, base uint64, newID func() string) fold.View {
	patches, next, err := adopt(v, id, base, newID)
	if err != nil {
		a.Left = append(a.Left, LeftRecord{id, err.Error()})
		return v
	}
	a.Patches = append(a.Patches, patches...)
	a.Adopted = append(a.Adopted, id)
	return next
}

// superseding is the lineage of a record's summary that stands for so many raw events and
// for the summaries of earlier records.
func superseding(earlier []compaction.Lineage, raw int) compaction.Lineage {
	l := compaction.Lineage{Level: 1, Windows: 1, Passes: 1, Events: raw}
	for _, e := range earlier {
		l.Windows += e.Windows
		l.Events += e.Events
		l.Passes = max(l.Passes, e.Passes+1)
	}
	return l
}

// records returns the ids of the visible events that are records of a foreign log.
func records(v fold.View) []string {
	var ids []string
	for _, e := range v.Events() {
		if isRecord(e) {
			ids = append(ids, e.ID())
		}
	}
	return ids
}

func isRecord(e *patch.Event) bool {
	_, ours := compaction.SaidLineage(e)
	return (IsCompactionEvent(e) || e.IsSummary()) && !ours
}

// adopt returns the patches that take over one record, and the view after them.
func adopt(v fold.View, id string, base uint64, newID func() string) ([]*patch.PatchEvent, fold.View, error) {
	at, _ := v.Find(id)
	said := v.At(at)
	c, ok := CompactionOf(said)
	if !ok {
		return nil, v, errors.New("what it says about compaction is not of ADK's shape")
	}
	if c.CompactedContent.IsZero() {
		return nil, v, errors.New("it has no compacted content")
	}
	text, err := summaryOf(c.CompactedContent)
	if err != nil {
		return nil, v, fmt.Errorf("its compacted content cannot be a summary: %w", err)
	}
	var covered []int
	var earlier []compaction.Lineage
	raw := 0
	for i, e := range v.Events() {
		if i == at {
			break
		}
		l, ours := compaction.SaidLineage(e)
		switch {
		case ours && record.Supersedes(c, e): // an earlier record, which this one supersedes
			covered = append(covered, i)
			earlier = append(earlier, l)
		case !v.IsSummary(i) && InCompactedRange(e, c) && !IsCompactionEvent(e):
			covered = append(covered, i)
			raw++
		}
	}
	if len(covered) == 0 {
		return nil, v, errors.New("no visible raw event before it lies in its range")
	}
	start, count := covered[0], len(covered)
	for i, c := range covered {
		if c != start+i {
			return nil, v, fmt.Errorf("the visible raw events in its range are not side by side: other events stand between number %d and number %d", covered[i-1], c)
		}
	}
	summary, err := patch.NewEvent(patch.Fields{
		ID: newID(), InvocationID: newID(), Author: "user",
		Branch: said.Branch(), IsolationScope: said.IsolationScope(), Timestamp: said.Timestamp(),
		Content:        record.Content(text),
		Actions:        patch.Actions{Compaction: &c},
		CustomMetadata: superseding(earlier, raw).Metadata(),
	})
	if err != nil {
		return nil, v, err
	}
	about := map[string]any{record.OwnKey: map[string]any{"adopted": id}}
	patches := []*patch.PatchEvent{
		patch.NewSummarise(start, count, summary),
		patch.NewSplice(at-count+1, 1).WithState(patch.Keep),
	}
	for i, p := range patches {
		if p, err = p.WithID(newID()).WithAuthor(record.Author).WithBase(base).WithGroup(id).WithCustomMetadata(about); err != nil {
			return nil, v, err
		}
		if err := v.Check(p, fold.CheckOptions{AsOfNow: true}); err != nil {
			return nil, v, err
		}
		next, err := v.Apply(patch.Record{Seq: v.Seq() + 1, Patch: p})
		if err != nil {
			return nil, v, err
		}
		v, patches[i] = next, p
	}
	return patches, v, nil
}

// summaryOf returns the text of a record's content if it can be a summary.
func summaryOf(content patch.Content) (string, error) {
	thoughts := false
	for _, p := range content.Parts() {
		if p.Kind() == patch.PartCall {
			return "", fmt.Errorf("%w: it calls the function %q", compaction.ErrRefusedAnswer, p.Name())
		}
		thoughts = thoughts || p.Thought()
	}
	text := record.Text(content)
	why := record.Unfit(text)
	if text == "" && thoughts {
		why = "it holds only thoughts"
	}
	if why != "" {
		return "", fmt.Errorf("%w: %s", compaction.ErrRefusedAnswer, why)
	}
	return text, nil
}
