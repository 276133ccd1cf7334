package recall

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"
)

// date is a day or a month in a query.
type date struct{ year, month, day int } // year 0 means any year, and day 0 any day

// datePatterns match dates in text that appendPlain has normalised: ISO dates, dates with dots, dates in Chinese,
// Japanese and Korean, and dates with names of months.
var datePatterns = []*regexp.Regexp{
	regexp.MustCompile(`\b(?P<year>[12]\d{3})-(?P<month>\d\d)(?:-(?P<day>\d\d))?(?:\D|$)`),
	regexp.MustCompile(`\b(?P<day>\d{1,2})\. ?(?P<month>\d{1,2})\. ?(?P<year>[12]\d{3})\b`),
	regexp.MustCompile(`(?:(?P<year>[12]\d{3}) ?[年년] ?)?\b(?P<month>\d{1,2}) ?[月월](?: ?(?P<day>\d{1,2}) ?[日일])?`),
	regexp.MustCompile(`(?:\b(?P<day>\d{1,2})(?:st|nd|rd|th|er|º|\.)? (?:of |de )?)?(?P<month>\pL{3,})\.?` +
		`(?: (?P<after>\d{1,2})(?:st|nd|rd|th)?\b)?(?:,? (?:of |de )?(?P<year>[12]\d{3})\b)?`),
}

// parseDates returns the dates in a query. For each day, it also returns the month of the day.
func parseDates(query string) (all []date) {
	var plain []byte
	for _, r := range norm.NFC.String(query) {
		plain = appendPlain(plain, r)
	}
	text := strings.Join(strings.Fields(string(plain)), " ")
	for _, form := range datePatterns {
		for _, match := range form.FindAllStringSubmatch(text, maxTerms) {
			var d date
			for i, name := range form.SubexpNames() {
				n, err := strconv.Atoi(match[i])
				switch {
				case name == "month" && err != nil:
					d.month = monthOf[match[i]]
				case name == "month":
					d.month = n
				case name == "year" && err == nil:
					d.year = n
				case name != "" && err == nil:
					d.day = n
				}
			}
			if d.month < 1 || d.month > 12 || d.day > 31 || match[0] == "may" && !strings.Contains(text, "in may") {
				continue
			}
			for _, d := range []date{d, {d.year, d.month, 0}} {
				if !slices.Contains(all, d) && len(all) < maxTerms {
					all = append(all, d)
				}
			}
		}
	}
	return all
}

// dateMatcher returns a function that reports whether the time of an event is on the date, in UTC.
func (x *Index) dateMatcher(d date) func(doc int32) bool {
	var dayStart, dayEnd int64 // start and end of the day of the event that was matched last
	var matches bool
	return func(doc int32) bool {
		if at := x.docs[doc].time; at < dayStart || at >= dayEnd {
			t := time.UnixMicro(at).UTC()
			dayStart = t.Truncate(24 * time.Hour).UnixMicro()
			dayEnd = dayStart + (24 * time.Hour).Microseconds()
			matches = !t.IsZero() && (d.year == 0 || d.year == t.Year()) && d.month == int(t.Month()) && (d.day == 0 || d.day == t.Day())
		}
		return matches
	}
}

// monthOf maps names of months to numbers.
var monthOf = func() map[string]int {
	all := map[string]int{}
	for i, names := range strings.Split(monthNames, "\n") {
		for name := range strings.FieldsSeq(names) {
			all[name] = i + 1
		}
	}
	return all
}()

// monthNames has one line per month. A line has the names of the month in English, German, French, Spanish, Italian,
// Portuguese and Russian, in the form that [appendPlain] produces.
const monthNames = `january jan januar janner janvier enero gennaio janeiro январь января январе
february feb februar fevrier febrero febbraio fevereiro февраль февраля феврале
march mar marz mars marzo marco март марта марте
april apr avril abril aprile апрель апреля апреле
may mai mayo maggio maio май мая мае
june jun juni juin junio giugno junho июнь июня июне
july jul juli juillet julio luglio julho июль июля июле
august aug aout agosto август августа августе
september sep sept septembre septiembre settembre setembro сентябрь сентября сентябре
october oct okt oktober octobre octubre ottobre outubro октябрь октября октябре
november nov novembre noviembre novembro ноябрь ноября ноябре
december dec dez dezember decembre diciembre dicembre dezembro декабрь декабря декабре`
