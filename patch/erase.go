package patch

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// Values says what becomes of the state values that an erased event set.
type Values string

// What becomes of values.
const (
	KeepValues Values = "keep" // they stay, and so does the state
	NullValues Values = "null" // null stands in their place
)

// Summaries says what becomes of what stands for erased events: summaries first of all, and copies.
type Summaries string

// What becomes of summaries.
const (
	RevertSummaries Summaries = ""      // they are erased, and reverted where they are visible
	BlankSummaries  Summaries = "blank" // they are erased
	KeepSummaries   Summaries = "keep"  // they stay, and say what they say
)

// Span is records of a log: those with seqs From to To.
type Span struct {
	From, To uint64
}

// Erasure is what a receipt says: what has been erased of the log's records, and why. A
// receipt is a patch of type [Erase]; its author and time are who erased and when.
type Erasure struct {
	// Seqs are the records of which something was erased. They ascend, and have a gap
	// between them or touch, but do not overlap.
	Seqs []Span

	// Within is for patches of whose events only some were erased: by the patch's seq, the
	// ascending indices of the erased ones among the events that it puts in. A patch without
	// any lost only its other fields.
	Within map[uint64][]int

	// Summaries says what became of the summaries of erased events.
	Summaries Summaries

	// Closed is 0 until the erasure is complete. Then it is the seq of the last record before
	// the closing commit: the authors of later patches have not seen the erased texts.
	Closed uint64

	// Values is what became of the state values that erased events set.
	Values Values

	// Initial are keys of the session's initial state whose values are null now, ascending.
	Initial []string

	// Reason is the reason that the author gave.
	Reason string

	// Digest lets a person who has the erased records and the salt prove that they were the
	// ones: see store.Erasure. It is 32 bytes, or none.
	Digest []byte
}

// covers reports whether the receipt is about the record with a seq.
func (e Erasure) covers(seq uint64) bool {
	i, _ := slices.BinarySearchFunc(e.Seqs, seq, func(s Span, seq uint64) int {
		if s.To < seq {
			return -1
		}
		return 1
	})
	return i < len(e.Seqs) && e.Seqs[i].From <= seq
}

// CoversEvent reports whether the receipt is about an event, by the seq of its record and its index
// among the events that the record brought; -1 is what a patch says besides its events.
func (e Erasure) CoversEvent(seq uint64, index int) bool {
	some, part := e.Within[seq]
	return e.covers(seq) && (!part || index < 0 || slices.Contains(some, index))
}

// The fields of a receipt, which stand among the patch's other fields.
const (
	eraseSeqs      = "seqs"
	eraseWithin    = "within"
	eraseSummaries = "summaries"
	eraseValues    = "values"
	eraseInitial   = "initial"
	eraseReason    = "reason"
	eraseDigest    = "digest"
	eraseClosed    = "closed"
)

// NewErase returns a receipt. It takes nothing away itself: it says what was erased. It
// changes neither the visible log nor the state, has no state policy, and cannot be taken
// back.
func NewErase(e Erasure) *PatchEvent {
	p := &PatchEvent{typ: Erase}
	put := func(name string, text []byte) { p.members = append(p.members, member{name, text}) }
	seqs := make([][]uint64, len(e.Seqs))
	for i, s := range e.Seqs {
		seqs[i] = []uint64{s.From, s.To}
	}
	put(eraseSeqs, jsonOf(unnoted{seqs}))
	if len(e.Within) > 0 {
		put(eraseWithin, indicesText(e.Within))
	}
	if e.Summaries != "" {
		put(eraseSummaries, jsontext.AppendQuote(nil, string(e.Summaries)))
	}
	if e.Values != "" {
		put(eraseValues, jsontext.AppendQuote(nil, string(e.Values)))
	}
	if len(e.Initial) > 0 {
		put(eraseInitial, jsonOf(unnoted{e.Initial}))
	}
	if e.Reason != "" {
		put(eraseReason, jsontext.AppendQuote(nil, e.Reason))
	}
	if len(e.Digest) > 0 {
		put(eraseDigest, jsontext.AppendQuote(nil, hex.EncodeToString(e.Digest)))
	}
	if e.Closed > 0 {
		put(eraseClosed, jsonOf(unnoted{e.Closed}))
	}
	return p
}

// Erasure returns what the receipt says, and whether the patch is one that is well-formed.
func (p *PatchEvent) Erasure() (Erasure, bool) {
	if p.typ != Erase {
		return Erasure{}, false
	}
	e, d := p.erasure()
	return e, d == nil
}

// erasure reads the fields of a receipt.
func (p *PatchEvent) erasure() (e Erasure, d *FieldError) {
	wrong := func(name, want string) *FieldError {
		return &FieldError{name, "want " + want + ", not " + clip(findMember(p.members, name)), WrongField}
	}
	field := func(name string, into any) bool {
		text := findMember(p.members, name)
		return text == nil || string(text) == "null" || json.Unmarshal(text, into) == nil
	}
	switch text := findMember(p.members, eraseSeqs); {
	case text == nil:
		return e, &FieldError{eraseSeqs, "an erase needs it", MissingField}
	case jsontext.KindOf(text) != jsontext.Array:
		return e, wrong(eraseSeqs, "an array of ranges such as [1,3]")
	}
	var seqs [][]uint64
	if !field(eraseSeqs, &seqs) {
		return e, wrong(eraseSeqs, "an array of ranges such as [1,3]")
	}
	last := uint64(0)
	for _, s := range seqs {
		if len(s) != 2 || s[0] <= last || s[1] < s[0] {
			return e, &FieldError{eraseSeqs, fmt.Sprintf("%v is no range of seqs behind %d", s, last), WrongField}
		}
		e.Seqs, last = append(e.Seqs, Span{s[0], s[1]}), s[1]
	}
	var within [][]uint64
	if !field(eraseWithin, &within) {
		return e, wrong(eraseWithin, "an array such as [[4,0,2]]: a seq and indices")
	}
	for _, of := range within {
		if len(of) == 0 || !e.covers(of[0]) || e.Within[of[0]] != nil {
			return e, &FieldError{eraseWithin, fmt.Sprintf("%v is no seq of %s, once, and indices", of, eraseSeqs), WrongField}
		}
		indices := make([]int, len(of)-1)
		for i, at := range of[1:] {
			if at > MaxRecordBytes || i > 0 && int(at) <= indices[i-1] {
				return e, &FieldError{eraseWithin, fmt.Sprintf("the indices of record %d do not ascend", of[0]), WrongField}
			}
			indices[i] = int(at)
		}
		if e.Within == nil {
			e.Within = map[uint64][]int{}
		}
		e.Within[of[0]] = indices
	}
	var digest string
	switch {
	case !field(eraseSummaries, &e.Summaries) || !e.Summaries.valid():
		return e, wrong(eraseSummaries, `"blank", "keep", or none`)
	case !field(eraseValues, &e.Values) || e.Values != "" && e.Values != KeepValues && e.Values != NullValues:
		return e, wrong(eraseValues, `"keep" or "null"`)
	case !field(eraseInitial, &e.Initial):
		return e, wrong(eraseInitial, "an array of keys")
	case !field(eraseReason, &e.Reason):
		return e, wrong(eraseReason, "a string")
	case !field(eraseDigest, &digest):
		return e, wrong(eraseDigest, "a string")
	case !field(eraseClosed, &e.Closed):
		return e, wrong(eraseClosed, "a seq")
	}
	if e.Values == "" {
		e.Values = KeepValues
	}
	var err error
	if e.Digest, err = hex.DecodeString(digest); err != nil || len(digest) != 0 && len(digest) != 64 {
		return e, wrong(eraseDigest, "32 bytes in hexadecimal")
	}
	for _, name := range []string{eraseInitial, eraseReason} {
		if !utf8.Valid(findMember(p.members, name)) {
			return e, &FieldError{name, "it is not valid UTF-8", WrongField}
		}
	}
	return e, nil
}

// WithClosed returns a copy of the receipt of an erasure that is complete, with [Erasure.Closed] set.
func (p *PatchEvent) WithClosed(last uint64) *PatchEvent {
	return p.set(eraseClosed, func(p *PatchEvent) {
		p.members = append(p.members[:len(p.members):len(p.members)], member{eraseClosed, jsonOf(unnoted{last})})
	})
}

func (s Summaries) valid() bool {
	return s == RevertSummaries || s == BlankSummaries || s == KeepSummaries
}

func indicesText(of map[uint64][]int) []byte {
	all := make([][]uint64, 0, len(of))
	for _, seq := range slices.Sorted(maps.Keys(of)) {
		row := []uint64{seq}
		for _, i := range of[seq] {
			row = append(row, uint64(i))
		}
		all = append(all, row)
	}
	return jsonOf(unnoted{all})
}

// UpTo returns the receipt as it is of the records up to a seq alone, which others have in
// common with its log, without the digest if it is of more; ok is false if the patch is no
// receipt that is well-formed.
func (p *PatchEvent) UpTo(seq uint64) (receipt *PatchEvent, ok bool) {
	e, ok := p.Erasure()
	if !ok {
		return nil, false
	}
	more := false
	e.Seqs = slices.DeleteFunc(slices.Clone(e.Seqs), func(s Span) bool {
		more = more || s.To > seq
		return s.From > seq
	})
	if !more && e.Closed <= seq {
		return p, true
	}
	if more {
		e.Digest = nil
	}
	if last := len(e.Seqs) - 1; last >= 0 {
		e.Seqs[last].To = min(e.Seqs[last].To, seq)
	}
	maps.DeleteFunc(e.Within, func(of uint64, _ []int) bool { return of > seq })
	e.Closed = min(e.Closed, seq)
	out := NewErase(e)
	out.identity = p.identity
	return out, true
}
