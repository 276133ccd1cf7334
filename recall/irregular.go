package recall

import "strings"

// irregular maps the forms of irregular English verbs and plurals to their base form.
var irregular = func() map[string]string {
	all := map[string]string{}
	for forms := range strings.SplitSeq(irregularForms, ";") {
		words := strings.Fields(forms)
		for _, form := range words[1:] {
			all[form] = words[0]
		}
	}
	return all
}()

// irregularForms lists base forms, each followed by its irregular forms.
const irregularForms = `bear bore born borne;become became;begin began begun;bend bent;bind bound;bite bit bitten;blow blew blown;
break broke broken;bring brought;build built;buy bought;catch caught;child children;choose chose chosen;come came;deal dealt;dig dug;
draw drew drawn;dream dreamt;drink drank drunk;drive drove driven;eat ate eaten;fall fell fallen;feed fed;feel felt;fight fought;
find found;fly flew flown;foot feet;forget forgot forgotten;freeze froze frozen;get got gotten;give gave given;go goes going gone went;
goose geese;grow grew grown;half halves;hang hung;hear heard;hide hid hidden;hold held;keep kept;knife knives;know knew known;lay laid;
lead led;leaf leaves;learn learnt;leave left;lend lent;life lives;lose lost;make made;man men;mean meant;meet met;mouse mice;pay paid;
person people;ride rode ridden;ring rang rung;rise rose risen;run ran;say said;see saw seen;seek sought;sell sold;send sent;
shake shook shaken;shelf shelves;shoot shot;show shown;sing sang sung;sink sank sunk;sit sat;sleep slept;speak spoke spoken;spend spent;
stand stood;steal stole stolen;stick stuck;strike struck;swear swore sworn;sweep swept;swim swam swum;take took taken;teach taught;
tear tore torn;tell told;think thought;throw threw thrown;tooth teeth;understand understood;wake woke woken;wear wore worn;wife wives;
win won;wolf wolves;woman women;write wrote written`
