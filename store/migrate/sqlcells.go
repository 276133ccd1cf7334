package migrate

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/patch"
)

// text returns a text; NULL is an empty one.
func text(cell any) (string, error) {
	switch v := cell.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return "", fmt.Errorf("%w: want a text, not %v", patch.ErrInvalid, cell)
}

// jsonOf returns the JSON in a column, or nil if there is none: NULL, an empty text, null.
func jsonOf(cell any) (json.RawMessage, error) {
	t, err := text(cell)
	if err != nil || t == "" {
		return nil, err
	}
	if !json.Valid([]byte(t)) {
		return nil, fmt.Errorf("%w: %s is not JSON", patch.ErrInvalid, clipped(t))
	}
	if t == "null" {
		return nil, nil
	}
	return json.RawMessage(t), nil
}

// truth returns a boolean; NULL is false.
func truth(cell any) (bool, error) {
	switch v := cell.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case int64:
		return v != 0, nil
	case float64:
		return v != 0, nil
	}
	return false, fmt.Errorf("%w: want a boolean, not %v", patch.ErrInvalid, cell)
}

// stateOf returns the members of a state, under keys with a prefix.
func stateOf(cell any, prefix string) (map[string]patch.Value, error) {
	t, err := jsonOf(cell)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if t == nil {
		return nil, nil
	}
	value, err := patch.ParseValue(t)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	members := value.Members()
	if members == nil {
		return nil, fmt.Errorf("%w: state: want an object, not %s", patch.ErrInvalid, clipped(string(t)))
	}
	if prefix == "" {
		return members, nil
	}
	prefixed := make(map[string]patch.Value, len(members))
	for name, v := range members {
		prefixed[prefix+name] = v
	}
	return prefixed, nil
}

// Forms in which SQLite's drivers for Go and Python write times. One without a zone is in
// UTC.
var timeForms = []string{
	"2006-01-02 15:04:05.999999999-07:00",
	"2006-01-02T15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999 -0700 MST",
	"2006-01-02 15:04:05.999999999 -0700",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04",
	"2006-01-02",
}

// A reading of the monotonic clock, which some drivers write behind a time.
var monotonic = regexp.MustCompile(` m=[+-][0-9.]+$`)

// timeOf returns a time; NULL is the zero time. A number is in seconds since 1970.
func timeOf(cell any) (time.Time, error) {
	switch v := cell.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		return v.UTC(), nil
	case int64:
		return epoch(float64(v))
	case float64:
		return epoch(v)
	}
	t, err := text(cell)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: want a time, not %v", patch.ErrInvalid, cell)
	}
	t = monotonic.ReplaceAllString(t, "")
	for _, form := range timeForms {
		if at, err := time.Parse(form, t); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %s is no time", patch.ErrInvalid, clipped(t))
}

// epoch is a time in seconds since 1970, to the microsecond that a float64 tells.
func epoch(seconds float64) (time.Time, error) {
	const first, last = -62135596800, 253402300799 // the years 1 to 9999
	if !(seconds >= first && seconds <= last) {
		return time.Time{}, fmt.Errorf("%w: %v seconds since 1970 is no time", patch.ErrInvalid, seconds)
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6))).UTC(), nil
}

// clipped is a text as an error shows it.
func clipped(t string) string {
	const most = 60
	if len(t) > most {
		return fmt.Sprintf("%q…", t[:most])
	}
	return fmt.Sprintf("%q", t)
}

// object writes a JSON object.
type object struct {
	text []byte
	err  error
}

// raw adds a member, unless there is no value.
func (o *object) raw(name string, value json.RawMessage) {
	if value == nil || o.err != nil {
		return
	}
	mark := byte(',')
	if len(o.text) == 0 {
		mark = '{'
	}
	o.text = append(append(o.text, mark, '"'), name...)
	o.text = append(append(o.text, '"', ':'), value...)
}

// fail keeps the first error, which is about a column.
func (o *object) fail(column string, err error) bool {
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("%s: %w", column, err)
	}
	return err != nil
}

// texts adds a text, unless it is empty.
func (o *object) texts(name, column string, cell any) {
	t, err := text(cell)
	if err == nil && !utf8.ValidString(t) {
		err = fmt.Errorf("%w: %s is not valid UTF-8", patch.ErrInvalid, clipped(t))
	}
	if o.fail(column, err) || t == "" {
		return
	}
	quoted, err := json.Marshal(t)
	if !o.fail(column, err) {
		o.raw(name, quoted)
	}
}

// json adds JSON, unless there is none.
func (o *object) json(name, column string, cell any) {
	value, err := jsonOf(cell)
	if !o.fail(column, err) {
		o.raw(name, value)
	}
}

// truth adds a boolean, unless it is false.
func (o *object) truth(name, column string, cell any) {
	v, err := truth(cell)
	if !o.fail(column, err) && v {
		o.raw(name, json.RawMessage("true"))
	}
}

// time adds a time, unless there is none.
func (o *object) time(name, column string, cell any) {
	t, err := timeOf(cell)
	if o.fail(column, err) || cell == nil {
		return
	}
	quoted, err := json.Marshal(t)
	if !o.fail(column, err) {
		o.raw(name, quoted)
	}
}

// event makes an event of the object.
func (o *object) event() (*patch.Event, error) {
	if o.err != nil {
		return nil, o.err
	}
	if len(o.text) == 0 {
		return nil, fmt.Errorf("%w: the row is empty", patch.ErrInvalid)
	}
	return adkjson.ParseEvent(append(o.text, '}'))
}
