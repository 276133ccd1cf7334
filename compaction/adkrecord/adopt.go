package adkrecord

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// Adoption is the plan to convert ADK's compaction records to summaries.
type Adoption struct {
	// Patches replace the events that each record covers with a summary, and remove the record. Apply them in one call,
	// in this order, to the view that they were planned on.
	Patches []*patch.PatchEvent

	// Adopted are the ids of the records that the patches convert.
	Adopted []string

	// NotAdopted are the records that stay unchanged.
	NotAdopted []UnadoptedRecord
}

// UnadoptedRecord is a compaction record that cannot be adopted.
type UnadoptedRecord struct {
	EventID string `json:"eventID"`
	Reason  string `json:"reason"`
}

// Options are the options of [Adopt].
type Options struct {
	// Records are the ids of the compaction records to convert. nil means all records. Ids of other events are
	// ignored.
	Records []string

	// NewID returns new ids. The number and order of calls depend only on the view and the other options. nil means
	// random UUIDs.
	NewID func() string
}

// Adopt plans the conversion of ADK's compaction records (see [IsCompactionEvent]) in a visible log to summaries.
//
// For each record, one patch replaces events with a summary. These are the visible raw events that precede the record
// and whose times are in the record's range. The summary has the record's compacted content and a new id. A second
// patch removes the record. Both patches keep the state. Summaries of earlier records whose ranges are within the
// record's range are replaced too.
//
// A record is not changed if its content cannot be a summary, if its events are not adjacent, if none of its events is
// visible, or if the summary would separate a function call from its response. NotAdopted then has the reason.
// Summaries with a [compaction.Lineage] are not converted.
func Adopt(v fold.View, opts Options) Adoption {
	if opts.NewID == nil {
		opts.NewID = uuid.NewString
	}
	var out Adoption
	base := v.PatchSeq()
	for _, id := range opts.recordIDs(v) {
		patches, next, err := opts.adopt(v, id, base)
		if err != nil {
			out.NotAdopted = append(out.NotAdopted, UnadoptedRecord{id, err.Error()})
			continue
		}
		v = next
		out.Patches = append(out.Patches, patches...)
		out.Adopted = append(out.Adopted, id)
	}
	return out
}

// recordIDs returns the ids of the visible records to convert.
func (o Options) recordIDs(v fold.View) []string {
	var ids []string
	for _, e := range v.Events() {
		if o.Records != nil && !slices.Contains(o.Records, e.ID()) {
			continue
		}
		if _, isOwn := compaction.ParseLineage(e); (IsCompactionEvent(e) || e.IsSummary()) && !isOwn {
			ids = append(ids, e.ID())
		}
	}
	return ids
}

// adopt returns the patches that convert one record, and the view after the patches.
func (o Options) adopt(v fold.View, id string, base uint64) ([]*patch.PatchEvent, fold.View, error) {
	at, _ := v.Find(id)
	record := v.At(at)
	claim, ok := summaries.ClaimOf(record)
	if !ok {
		return nil, v, errors.New("its compaction record does not have ADK's form")
	}
	c := claim.EventCompaction
	if c.CompactedContent.String() == "null" {
		return nil, v, errors.New("it has no compacted content")
	}
	text, err := summaryOf(c.CompactedContent)
	if err != nil {
		return nil, v, fmt.Errorf("its compacted content cannot be a summary: %w", err)
	}
	covered := coveredBy(claim, v, at)
	if len(covered) == 0 {
		return nil, v, errors.New("there is no visible raw event before it within its range")
	}
	start, count := covered[0], len(covered)
	lineage := compaction.Lineage{Level: 1, Windows: 1, Passes: 1}
	for i, at := range covered {
		if at != start+i {
			return nil, v, fmt.Errorf("the visible raw events in its range are not adjacent: other events are between number %d and number %d", covered[i-1], at)
		}
		earlier, isOwn := compaction.ParseLineage(v.At(at))
		if !isOwn {
			earlier = compaction.Lineage{Events: 1, Tokens: records.LoggedTokens(v.At(at)), From: v.Entry(at).Seq, To: v.Entry(at).Seq}
		}
		lineage = lineage.Add(earlier)
	}
	summary, err := patch.NewEvent(patch.Fields{
		ID: o.NewID(), InvocationID: o.NewID(), Author: "user",
		Branch: record.Branch(), IsolationScope: record.IsolationScope(), Timestamp: record.Timestamp(),
		Content:        summaries.Content(text),
		Actions:        patch.Actions{Compaction: &c},
		CustomMetadata: lineage.Metadata(),
	})
	if err != nil {
		return nil, v, err
	}
	return o.finishPatches(v, id, base, patch.NewSummarise(start, count, summary), patch.NewSplice(at-count+1, 1).WithState(patch.Keep))
}

// coveredBy returns the indices of the visible events that the record at index at covers.
func coveredBy(claim summaries.Claim, v fold.View, at int) (covered []int) {
	for i, e := range v.Events() {
		if i == at {
			break
		}
		_, isOwn := compaction.ParseLineage(e)
		superseded := isOwn && summaries.Supersedes(claim.EventCompaction, e) // whether e is the summary of an earlier record that this record replaces
		raw := !v.Entry(i).Summary && claim.Covers(e) && (isOwn || !IsCompactionEvent(e))
		if superseded || raw {
			covered = append(covered, i)
		}
	}
	return covered
}

// finishPatches completes the patches that convert one record for logging. It returns them with the view after them.
func (o Options) finishPatches(v fold.View, id string, base uint64, patches ...*patch.PatchEvent) ([]*patch.PatchEvent, fold.View, error) {
	before, metadata := v, map[string]any{patch.OwnMetadata: map[string]any{"adopted": id}}
	for i, p := range patches {
		p, err := p.WithID(o.NewID()).WithAuthor(patch.CompactionAuthor).WithBase(base).WithGroup(id).WithCustomMetadata(metadata)
		if err != nil {
			return nil, before, err
		}
		if err := v.Check(p, fold.CheckOptions{AsOfNow: true}); err != nil {
			return nil, before, err
		}
		if v, err = v.Apply(patch.Record{Seq: v.Seq() + 1, Patch: p}); err != nil {
			return nil, before, err
		}
		patches[i] = p
	}
	return patches, v, nil
}

// summaryOf returns the text of a record's content. If the content cannot be a summary, it returns an error.
func summaryOf(content patch.Value) (string, error) {
	thoughts := false
	for _, p := range content.Parts() {
		if p.Kind == patch.PartCall {
			return "", fmt.Errorf("%w: it calls the function %q", compaction.ErrRefusedAnswer, p.Name)
		}
		thoughts = thoughts || p.Thought
	}
	text := summaries.Text(content)
	why := summaries.ProblemOf(text)
	if text == "" && thoughts {
		why = "it contains only thoughts"
	}
	if why != "" {
		return "", fmt.Errorf("%w: %s", compaction.ErrRefusedAnswer, why)
	}
	return text, nil
}
