package migrated

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/adk/v2/session"
	"pgregory.net/rapid"
)

// drawer draws Go values of any type: each field of a struct is set, or left, by chance.
type drawer struct {
	t      *rapid.T
	noTemp bool // no state of one invocation alone
	within []reflect.Type
}

func (d *drawer) n(most int) int { return rapid.IntRange(0, most).Draw(d.t, "n") }

func (d *drawer) text() string {
	return rapid.SampledFrom([]string{"", "a", "b c", "<&>\u2028", "𝄞", "\x1b[1m", `"\`, "null", "temp"}).Draw(d.t, "text")
}

func (d *drawer) value(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[time.Duration]():
		v.SetInt(int64(d.n(5)) * 1234567890)
		return
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2025, 2, 28, 23, 59, d.n(59), 1000*d.n(999999), time.UTC)))
		return
	case reflect.TypeFor[jsonschema.Schema]():
		v.Set(reflect.ValueOf(jsonschema.Schema{Type: "object", Title: d.text(), Required: []string{"b"}}))
		return
	}
	if v.Type().String() == "civil.Date" { // ADK cannot read one that lacks something
		for i, n := range []int64{2025, 2, int64(1 + d.n(20))} {
			v.Field(i).SetInt(n)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem())
	case reflect.Struct:
		if slices.Contains(d.within, v.Type()) {
			return // a type inside itself
		}
		d.within = append(d.within, v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && d.n(3) == 0 {
				d.value(v.Field(i))
			}
		}
		d.within = d.within[:len(d.within)-1]
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), d.n(2), 2))
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range d.n(2) {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			d.value(key)
			d.value(elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.String:
		v.SetString(d.text())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(d.n(100)) - 50)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(d.n(200)))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(d.n(100)) / 3)
	case reflect.Interface:
		if x := d.any(2); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		panic("no rule for " + v.Type().String())
	}
}

// any draws what an agent may put into an `any`.
func (d *drawer) any(depth int) any {
	switch d.n(9) {
	case 0:
		return nil
	case 1:
		return d.n(1) == 0
	case 2:
		return d.n(5) - 2
	case 3:
		return int64(1<<53 + 1)
	case 4:
		return rapid.SampledFrom([]json.Number{"1.0", "1e2", "-0", "0.1", "9007199254740993", "1E-7"}).Draw(d.t, "literal")
	case 5:
		return float64(d.n(9)) / 4
	case 6:
		if depth > 0 {
			return map[string]any{"a": d.any(depth - 1), d.text(): d.any(depth - 1)}
		}
	case 7:
		if depth > 0 {
			return []any{d.any(depth - 1), d.any(0)}
		}
	}
	return d.text()
}

var stateKeys = []string{"a", "b", "c d", "app:x", "app:y", "user:x", "user:ü", "temp:t"}

func (d *drawer) state(most int) map[string]any {
	state := map[string]any{}
	for range d.n(most) {
		key := rapid.SampledFrom(stateKeys).Draw(d.t, "key")
		if d.noTemp && strings.HasPrefix(key, session.KeyPrefixTemp) {
			continue
		}
		state[key] = d.any(2)
	}
	return state
}

// event draws an event. Times are few, so that some are equal, and not always ascending.
func (d *drawer) event(id string) *session.Event {
	e := new(session.Event)
	d.value(reflect.ValueOf(e).Elem())
	e.ID, e.Partial = id, false
	e.Author = rapid.SampledFrom([]string{"user", "clerk", "a b"}).Draw(d.t, "author")
	e.Timestamp = time.Date(2025, 6, 1, 10, 0, d.n(3), 1000*rapid.SampledFrom([]int{0, 1, 250000, 999999}).Draw(d.t, "µs"), time.UTC)
	if d.n(1) == 0 {
		e.Actions.StateDelta = d.state(3)
	}
	if e.RequestedInput != nil {
		e.RequestedInput.Payload = nil
	}
	return e
}

// fill has a service write sessions of several apps and users, and returns the apps.
func (d *drawer) fill(service session.Service) []string {
	no := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	apps := []string{"shop", "a b/c"}
	ctx := d.t.Context()
	for i := range 1 + d.n(3) {
		request := &session.CreateRequest{
			AppName: apps[d.n(1)], UserID: rapid.SampledFrom([]string{"ada", "b%b"}).Draw(d.t, "user"),
			SessionID: fmt.Sprint("s", i), State: d.state(3),
		}
		created, err := service.Create(ctx, request)
		no(err)
		s := created.Session
		for j := range d.n(6) {
			no(service.AppendEvent(ctx, s, d.event(fmt.Sprint("e", j))))
			if d.n(2) == 0 { // it is read again, as float64
				got, err := service.Get(ctx, &session.GetRequest{AppName: s.AppName(), UserID: s.UserID(), SessionID: s.ID()})
				no(err)
				s = got.Session
			}
		}
	}
	return apps
}
