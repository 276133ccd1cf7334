package recall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Author is the author of the patches that replace long results with shortened copies.
const Author = "recall"

// MinResultTokens is the smallest limit that [Shorten] applies. The notes about omitted parts need this much room.
const MinResultTokens = 200

// shortenedKey is the key of the member that marks a result as shortened.
const shortenedKey = "shortened"

// Shorten returns a replacement for the event e, which is in the record with the given seq. It returns nil if no
// function response in e has more than maxTokens estimated tokens. If maxTokens is below [MinResultTokens], the limit
// is MinResultTokens.
//
// In the replacement, each response above the limit is shortened to half of the limit. Long texts and lists keep their
// beginning and end. Objects keep their keys if there is room. A shortened response has a member "shortened" with a
// handle for [ReadTool]. The handle is the argument handle, a slash, and the index of the part. Names and ids of calls
// do not change. The replacement has an id from newID and no state delta.
//
// Responses of [SearchTool] and ReadTool are never shortened, and neither are responses with media in their members.
// Media that accompany a response are kept and do not count.
//
// The error is not nil if the event cannot be rebuilt.
func Shorten(e *patch.Event, seq uint64, handle string, newID func() string, maxTokens int) (*patch.Event, error) {
	if e.EstimatedTokens() <= maxTokens {
		return nil, nil
	}
	maxTokens = max(maxTokens, MinResultTokens)
	shorten := func(noteOnly bool) (*patch.Event, error) {
		short := map[int]json.RawMessage{}
		for i, p := range e.Content().Parts() {
			if p.Kind == patch.PartResponse && !isRecallTool(p.Name) && utf8.RuneCount(records.JSON(p.Response)) > maxTokens*patch.RunesPerToken && !hasMedia(p) {
				short[i] = shortenPart(p, fmt.Sprintf("%s/%d", handle, i), maxTokens, noteOnly)
			}
		}
		if len(short) == 0 {
			return nil, nil
		}
		return e.StandIn(newID(), seq, short)
	}
	in, err := shorten(false)
	if err != nil { // a replacement without the members of the response is always valid
		in, err = shorten(true)
	}
	return in, err
}

// Shortener returns a function for store.AppendOptions.Follow. If an appended event has a result of more than
// maxTokens, the function returns a patch by [Author] that replaces the event with the result of [Shorten]. The patch
// keeps the state and can be reverted. The function newID returns the id of the replacement. The function handle
// returns the handle of a record's event for [ReadTool].
func Shortener(maxTokens int, newID func() string, handle func(r patch.Record) string) func(fold.View, patch.Record) (*patch.PatchEvent, error) {
	return func(v fold.View, r patch.Record) (*patch.PatchEvent, error) {
		if r.Event.EstimatedTokens() <= maxTokens {
			return nil, nil
		}
		i, visible := v.Len()-1, true
		if i < 0 || v.At(i).ID() != r.ID() {
			i, visible = v.Find(r.ID())
		}
		if !visible {
			return nil, nil
		}
		short, err := Shorten(r.Event, r.Seq, handle(r), newID, maxTokens)
		if err != nil || short == nil {
			return nil, err
		}
		return patch.NewSplice(i, 1, short).WithState(patch.Keep).WithAuthor(Author).WithBase(v.PatchSeq()), nil
	}
}

// shortenPart returns the JSON of a part with its function response shortened. If noteOnly is set, the response has
// only the member shortenedKey.
func shortenPart(p patch.Part, handle string, maxTokens int, noteOnly bool) json.RawMessage {
	response := records.JSON(p.Response)
	note := fmt.Sprintf("This is a part of a result of %d characters. %s reads it whole, page by page, with the handle %q.",
		utf8.RuneCountInString(Original(p)), ReadTool, handle)
	members := []member{{quote(shortenedKey), quoteJSON(note)}}
	var own []member
	media := 0
	for _, m := range parseObject(records.JSON(p.Value)) {
		if m.key == `"id"` || m.key == `"name"` || m.key == `"parts"` || m.key != `"response"` && len(m.value) < noteRoom {
			own = append(own, m)
		}
		if m.key == `"parts"` {
			media = utf8.RuneCount(m.value)
		}
	}
	build := func(members []member) json.RawMessage {
		return marshalObject(append(slices.Clip(own), member{`"response"`, marshalObject(members)}))
	}
	all := build(members)
	maxRunes := maxTokens*patch.RunesPerToken + media
	if !noteOnly {
		short := parseObject(shrink(response, max((maxRunes+media)/2-utf8.RuneCount(all), 1), 0))
		members[0].key = freeKey(short, shortenedKey)
		if whole := build(append(members, short...)); utf8.RuneCount(whole) <= maxRunes {
			all = whole
		}
	}
	return replaceMember(records.JSON(p.JSON), `"functionResponse"`, all)
}

// mediaNoteBytes is a number of bytes. If removing media from a response makes it smaller by more than this number,
// the response contained media. Other differences are smaller.
const mediaNoteBytes = 64

// hasMedia reports whether the members of a response contain media. The field p.Response has a note in place of such
// media.
func hasMedia(p patch.Part) bool {
	for _, m := range parseObject(records.JSON(p.Value)) {
		if m.key == `"response"` {
			return strings.Contains(string(m.value), `"data":"`) && len(m.value)-len(records.JSON(p.Response)) > mediaNoteBytes
		}
	}
	return false
}

// freeKey returns key in quotes. If a member already has that key, a number is appended.
func freeKey(members []member, key string) string {
	taken := make(map[string]bool, len(members))
	for _, m := range members {
		taken[m.key] = true
	}
	free := quote(key)
	for n := 2; taken[free]; n++ {
		free = quote(fmt.Sprint(key, n))
	}
	return free
}

// replaceMember returns an object in which one member has a new value.
func replaceMember(object json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	members := parseObject(object)
	for i := range members {
		if members[i].key == key {
			members[i].value = value
		}
	}
	return marshalObject(members)
}

// Original returns a logged function response as text. If the response's only member is a string, Original returns that
// string. Otherwise it returns the response as compact JSON. Media that accompany the response are not included.
func Original(p patch.Part) string {
	response := records.JSON(p.Response)
	if all := parseObject(response); len(all) == 1 && all[0].value[0] == '"' {
		var text string
		if json.Unmarshal(all[0].value, &text) == nil {
			return text
		}
	}
	return string(response)
}

type member struct {
	key   string // quoted
	value json.RawMessage
}

// parseObject returns the members of a JSON object in order. If text is not an object, it returns none.
func parseObject(text json.RawMessage) (all []member) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return nil
		}
		all = append(all, member{quote(key), value})
	}
	return all
}

func marshalObject(members []member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.key)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func quote(text string) string { return string(quoteJSON(text)) }

func quoteJSON(text string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // cannot fail for a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// maxShrinkDepth limits the depth at which values are shortened, because each level parses the rest of the value
// again.
const maxShrinkDepth = 8

// shrink shortens a JSON value and keeps its beginning and end. The argument room is the desired number of
// characters.
func shrink(text json.RawMessage, room, depth int) json.RawMessage {
	size := utf8.RuneCount(text)
	switch {
	case size <= room:
		return text
	case text[0] == '"':
		return shrinkText(text, room)
	case text[0] == '{' && depth < maxShrinkDepth:
		return shrinkObject(text, room, depth)
	case text[0] == '[' && depth < maxShrinkDepth:
		return shrinkList(text, room, depth)
	}
	return quoteJSON(omissionNote(size, "characters")) // a long number, or a value deeper than maxShrinkDepth
}

// omissionNote returns a note that n things were left out. The argument noun names these things, such as characters.
func omissionNote(n int, noun string) string { return fmt.Sprintf("[… %d %s left out …]", n, noun) }

// noteRoom is the number of characters reserved for a note from omissionNote.
const noteRoom = 40

// shrinkText returns the beginning and the end of a text.
func shrinkText(text json.RawMessage, room int) json.RawMessage {
	var said string
	if json.Unmarshal(text, &said) != nil {
		return quoteJSON(omissionNote(len(text), "characters"))
	}
	runes := []rune(said)
	// Escapes need room too, so the text is shortened until it fits.
	for keep := min(room-noteRoom, len(runes)); keep > 0; keep = keep * 3 / 4 {
		head, tail := keep-keep/3, keep/3
		short := quoteJSON(string(runes[:head]) + omissionNote(len(runes)-head-tail, "characters") + string(runes[len(runes)-tail:]))
		if utf8.RuneCount(short) <= room {
			return short
		}
	}
	return quoteJSON(omissionNote(len(runes), "characters"))
}

// shrinkObject shortens the longest members of an object to the same length. If the keys alone need more than room,
// it omits the last members.
func shrinkObject(text json.RawMessage, room, depth int) json.RawMessage {
	members := parseObject(text)
	sizes := make([]int, len(members))
	kept, keys, values := 0, 2, 0 // number of kept members, and characters of their keys and values
	for i, m := range members {
		sizes[i] = utf8.RuneCount(m.value)
		minSize := min(sizes[i], noteRoom)
		keys += utf8.RuneCountInString(m.key) + 2
		if keys+values+minSize > room-noteRoom {
			break
		}
		values += minSize
		kept++
	}
	omitted := len(members) - kept
	members, sizes = members[:kept], sizes[:kept]
	maxSize := sizeLimit(sizes, room-keys-noteRoom)
	for i, m := range members {
		members[i].value = shrink(m.value, max(maxSize, min(sizes[i], noteRoom)), depth+1)
	}
	if omitted > 0 {
		members = append(members, member{freeKey(members, "…"), quoteJSON(omissionNote(omitted, "members"))})
	}
	return marshalObject(members)
}

// sizeLimit returns the greatest limit with this property: if each of sizes is reduced to the limit, their sum is at
// most room.
func sizeLimit(sizes []int, room int) int {
	low, high := 0, max(room, 0)
	for low < high {
		mid := (low + high + 1) / 2
		sum := 0
		for _, n := range sizes {
			sum += min(n, mid)
		}
		if sum <= room {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// shrinkList returns the beginning and the end of a list.
func shrinkList(text json.RawMessage, room, depth int) json.RawMessage {
	var all []json.RawMessage
	_ = json.Unmarshal(text, &all) // cannot fail, because text is a list
	room -= noteRoom + 2
	var head, tail []json.RawMessage
	for taken := 0; len(head) < len(all); {
		size := utf8.RuneCount(all[len(head)]) + 1
		if taken+size > room*2/3 {
			break
		}
		taken += size
		head = append(head, all[len(head)])
	}
	for taken := 0; len(head)+len(tail) < len(all); {
		last := all[len(all)-1-len(tail)]
		size := utf8.RuneCount(last) + 1
		if taken+size > room/3 {
			break
		}
		taken += size
		tail = append(tail, last)
	}
	if len(head) == 0 && len(all) > 0 { // the first element is too long to be kept whole
		head = append(head, shrink(all[0], max(room*2/3-1, 1), depth+1))
	}
	parts := make([]string, 0, len(head)+len(tail)+1)
	for _, e := range head {
		parts = append(parts, string(e))
	}
	if n := len(all) - len(head) - len(tail); n > 0 {
		parts = append(parts, quote(omissionNote(n, "elements")))
	}
	for i := len(tail) - 1; i >= 0; i-- {
		parts = append(parts, string(tail[i]))
	}
	return json.RawMessage("[" + strings.Join(parts, ",") + "]")
}
