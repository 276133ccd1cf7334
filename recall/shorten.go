package recall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Author is the author of the patches that put shortened results in the place of large ones.
const Author = "recall"

// MinResultTokens is the least limit of [Shorten]: what says that something was left out needs
// room itself.
const MinResultTokens = 200

// shortenedKey is where a shortened result says that it is one.
const shortenedKey = "shortened"

// Shorten returns an event to stand in the place of e, which the record with the given seq
// brought, or nil if no function response in e takes more than maxTokens, as estimated. In it, each
// that does is shortened to half of that: of long texts and lists in it the beginning and the end
// are left, objects keep their keys where they can, and media that the function returned go. The
// result says so in its member "shortened", with the handle by which [SearchTool]'s companion
// [ReadTool] reads it whole: handle, a slash and the index of the part. Names and ids of calls stay.
// The event has an id of newID's, and no state delta. Results of these two tools are never shortened.
//
// A limit below [MinResultTokens] is taken as that. The error is nil unless the event cannot be
// rebuilt, which is not to be expected.
func Shorten(e *patch.Event, seq uint64, handle string, newID func() string, maxTokens int) (*patch.Event, error) {
	if e.EstimatedTokens() <= maxTokens {
		return nil, nil
	}
	maxTokens = max(maxTokens, MinResultTokens)
	shorten := func(bare bool) (*patch.Event, error) {
		short := map[int]json.RawMessage{}
		for i, p := range e.Content().Parts() {
			if p.Kind == patch.PartResponse && !isRecall(p.Name) && sizeOf(records.JSON(p.Value)) > maxTokens*patch.RunesPerToken {
				short[i] = shortPart(p, fmt.Sprintf("%s/%d", handle, i), maxTokens, bare)
			}
		}
		if len(short) == 0 {
			return nil, nil
		}
		return e.StandIn(newID(), seq, short)
	}
	in, err := shorten(false)
	if err != nil { // whatever a tool has returned, it is not shown whole
		in, err = shorten(true)
	}
	return in, err
}

// sizeOf is how many characters a function response takes.
func sizeOf(response json.RawMessage) int { return utf8.RuneCount(response) }

// shortPart returns the JSON of a part with its function response shortened, or with nothing of it
// but that it is, if bare.
func shortPart(p patch.Part, handle string, maxTokens int, bare bool) json.RawMessage {
	response := records.JSON(p.Response)
	note := fmt.Sprintf("This is a part of a result of %d characters. %s reads it whole, page by page, with the handle %q.",
		utf8.RuneCountInString(Original(p)), ReadTool, handle)
	said := []member{{quote(shortenedKey), quoted(note)}}
	var own []member
	for _, m := range membersOf(records.JSON(p.Value)) {
		if m.key == `"id"` || m.key == `"name"` || m.key != `"response"` && m.key != `"parts"` && len(m.value) < noteRoom { // media count by their bytes
			own = append(own, m)
		}
	}
	with := func(said []member) json.RawMessage {
		return objectOf(append(slices.Clip(own), member{`"response"`, objectOf(said)}))
	}
	all := with(said)
	most := maxTokens * patch.RunesPerToken
	if !bare {
		short := membersOf(shrink(response, max(most/2-sizeOf(all), 1), 0))
		said[0].key = freeKey(short, shortenedKey)
		if whole := with(append(said, short...)); sizeOf(whole) <= most {
			all = whole
		}
	}
	return replaced(records.JSON(p.JSON), `"functionResponse"`, all)
}

// freeKey returns a key, quoted, that no member has.
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

// replaced returns an object with another value of a member.
func replaced(object json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	members := membersOf(object)
	for i := range members {
		if members[i].key == key {
			members[i].value = value
		}
	}
	return objectOf(members)
}

// Original is what a function response says, as it was logged, to be read page by page: the text, if
// it says nothing but one text in one member, and else the JSON of the response, with the media
// that the function returned, as it stands in the log but for white space.
func Original(p patch.Part) string {
	response := records.JSON(p.Response)
	media := ""
	for _, m := range membersOf(records.JSON(p.Value)) {
		if m.key == `"parts"` {
			media = string(m.value)
		}
	}
	if media != "" {
		if response == nil {
			response = json.RawMessage("null")
		}
		return `{"response":` + string(response) + `,"parts":` + media + `}`
	}
	if all := membersOf(response); len(all) == 1 && all[0].value[0] == '"' {
		var text string
		if json.Unmarshal(all[0].value, &text) == nil {
			return text
		}
	}
	return string(response)
}

// member is one of an object: the key as it is quoted, and the value.
type member struct {
	key   string
	value json.RawMessage
}

// membersOf returns the members of a JSON object in their order; of another value none.
func membersOf(text json.RawMessage) (all []member) {
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

func elementsOf(text json.RawMessage) (all []json.RawMessage) {
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	return all
}

func objectOf(members []member) json.RawMessage {
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

func quote(text string) string { return string(quoted(text)) }

func quoted(text string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a string, to memory
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// maxShrinkDepth is how deep a value is looked into: each level takes a look at all of it.
const maxShrinkDepth = 8

// shrink returns a JSON value that says, in about so many characters at most, what begins and
// what ends another one, which stands at a depth.
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
	return quoted(leftOut(size, "characters")) // a number, which nobody reads, or what is too deep
}

// leftOut says what is missing.
func leftOut(n int, of string) string { return fmt.Sprintf("[… %d %s left out …]", n, of) }

// noteRoom is what a note about what is missing takes.
const noteRoom = 40

// shrinkText leaves the beginning and the end of a text.
func shrinkText(text json.RawMessage, room int) json.RawMessage {
	var said string
	if json.Unmarshal(text, &said) != nil {
		return quoted(leftOut(len(text), "characters"))
	}
	runes := []rune(said)
	// Escapes take room too: what is left is made shorter until it fits.
	for keep := min(room-noteRoom, len(runes)); keep > 0; keep = keep * 3 / 4 {
		head, tail := keep-keep/3, keep/3
		short := quoted(string(runes[:head]) + leftOut(len(runes)-head-tail, "characters") + string(runes[len(runes)-tail:]))
		if utf8.RuneCount(short) <= room {
			return short
		}
	}
	return quoted(leftOut(len(runes), "characters"))
}

// shrinkObject shrinks the longest members of an object, to one length; if the keys alone take
// too much, the last members go.
func shrinkObject(text json.RawMessage, room, depth int) json.RawMessage {
	members := membersOf(text)
	sizes := make([]int, len(members))
	kept, keys, values := 0, 2, 0 // how many, and what they take
	for i, m := range members {
		sizes[i] = utf8.RuneCount(m.value)
		least := min(sizes[i], noteRoom)
		keys += utf8.RuneCountInString(m.key) + 2
		if keys+values+least > room-noteRoom {
			break
		}
		values += least
		kept++
	}
	left := len(members) - kept
	members, sizes = members[:kept], sizes[:kept]
	most := level(sizes, room-keys-noteRoom)
	for i, m := range members {
		members[i].value = shrink(m.value, max(most, min(sizes[i], noteRoom)), depth+1)
	}
	if left > 0 {
		members = append(members, member{freeKey(members, "…"), quoted(leftOut(left, "members"))})
	}
	return objectOf(members)
}

// level returns the length to which all longer ones must be cut for the sum to fit.
func level(sizes []int, room int) int {
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

// shrinkList leaves the beginning and the end of a list.
func shrinkList(text json.RawMessage, room, depth int) json.RawMessage {
	all := elementsOf(text)
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
	if len(head) == 0 && len(all) > 0 { // the first one is long by itself
		head = append(head, shrink(all[0], max(room*2/3-1, 1), depth+1))
	}
	parts := make([]string, 0, len(head)+len(tail)+1)
	for _, e := range head {
		parts = append(parts, string(e))
	}
	if n := len(all) - len(head) - len(tail); n > 0 {
		parts = append(parts, quote(leftOut(n, "elements")))
	}
	for i := len(tail) - 1; i >= 0; i-- {
		parts = append(parts, string(tail[i]))
	}
	return json.RawMessage("[" + strings.Join(parts, ",") + "]")
}
