package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
)

var shells = []string{"bash", "zsh", "fish"}

func completionCommands() []command {
	return []command{{
		name:     "completion",
		operands: []string{"SHELL"},
		short:    "Print a script that completes commands and flags in a shell",
		long:     `SHELL is bash, zsh or fish.`,
		examples: []string{
			"source <(patchlog completion bash)                                  # this shell",
			"patchlog completion bash > ~/.local/share/bash-completion/completions/patchlog",
			"patchlog completion zsh > \"${fpath[1]}/_patchlog\"",
			"patchlog completion fish > ~/.config/fish/completions/patchlog.fish",
		},
		noDatabase: true,
		noJSON:     true,
		setup: func(fs *flag.FlagSet) action {
			return func(_ context.Context, a *app, operands []string) error {
				switch operands[0] {
				case "bash":
					return a.out.line(bashCompletion(completionTree(a)))
				case "zsh":
					return a.out.line(zshCompletion(completionTree(a)))
				case "fish":
					return a.out.line(fishCompletion(completionTree(a)))
				}
				return usagef("unknown shell %q; one of %s", operands[0], strings.Join(shells, ", "))
			}
		},
	}}
}

// completion is what can be typed after some words: names of commands, or flags.
type completion struct {
	words   string // the command, or the group
	choices []choice
	flags   bool // the choices are flags
	files   bool // a file's name can stand there
}

// choice is a word that can be typed next.
type choice struct {
	word  string
	short string
	value string // of a flag, the name of its value; empty if it takes none
}

// completionTree lists what can be typed, the top level first.
func completionTree(a *app) []completion {
	tree := []completion{{}}
	groups := map[string]int{}
	for _, cmd := range commands() {
		first, second, nested := strings.Cut(cmd.name, " ")
		if !nested {
			tree[0].choices = append(tree[0].choices, choice{word: first, short: cmd.short})
		} else {
			at, ok := groups[first]
			if !ok {
				at = len(tree)
				groups[first] = at
				tree = append(tree, completion{words: first})
				tree[0].choices = append(tree[0].choices, choice{word: first, short: "Change what a model sees"})
			}
			tree[at].choices = append(tree[at].choices, choice{word: second, short: cmd.short})
		}
		fs, _ := cmd.flagSet(a)
		c := completion{words: cmd.name, flags: true, files: slices.Contains(cmd.operands, "FILE")}
		fs.VisitAll(func(f *flag.Flag) {
			value, usage := flag.UnquoteUsage(f)
			c.choices = append(c.choices, choice{"--" + f.Name, usage, value})
		})
		if cmd.name == "completion" {
			c = completion{words: cmd.name}
			for _, shell := range shells {
				c.choices = append(c.choices, choice{word: shell, short: shell})
			}
		}
		tree = append(tree, c)
	}
	tree[0].choices = append(tree[0].choices, choice{word: "help", short: "Explain a command"})
	return tree
}

func (c completion) list() string {
	words := make([]string, len(c.choices))
	for i, ch := range c.choices {
		words[i] = ch.word
	}
	return strings.Join(words, " ")
}

func bashCompletion(tree []completion) string {
	var b strings.Builder
	b.WriteString(`# bash completion for patchlog
_patchlog() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local i words='' choices=''
    for ((i = 1; i < COMP_CWORD && i < 3; i++)); do
        case ${COMP_WORDS[i]} in
        -*) break ;;
        esac
        case "$words ${COMP_WORDS[i]}" in
`)
	for _, c := range tree[1:] {
		fmt.Fprintf(&b, "        ' %s') words=' %s' ;;\n", c.words, c.words)
	}
	b.WriteString(`        *) break ;;
        esac
    done
    case $prev in
    --db | --replacement)
        COMPREPLY=($(compgen -f -- "$cur"))
        return
        ;;
    esac
    case $words in
`)
	for _, c := range tree {
		words := c.words
		if words != "" {
			words = " " + words
		}
		fmt.Fprintf(&b, "    '%s') choices='%s' ;;\n", words, c.list())
	}
	b.WriteString(`    esac
    COMPREPLY=($(compgen -W "$choices" -- "$cur"))
}
complete -o default -F _patchlog patchlog`)
	return b.String()
}

func zshCompletion(tree []completion) string {
	var b strings.Builder
	b.WriteString(`#compdef patchlog
_patchlog() {
    local -a choices
    local typed='' word
    while (( CURRENT > 2 )); do
        word=${words[2]}
        case "$typed $word" in
`)
	for _, c := range tree[1:] {
		fmt.Fprintf(&b, "        ' %s') ;;\n", c.words)
	}
	b.WriteString(`        *) break ;;
        esac
        typed="$typed $word"
        shift words
        (( CURRENT -= 1 ))
    done
    case $typed in
`)
	for _, c := range tree {
		words := c.words
		if words != "" {
			words = " " + words
		}
		fmt.Fprintf(&b, "    '%s')\n", words)
		if !c.flags {
			b.WriteString("        choices=(\n")
			for _, ch := range c.choices {
				fmt.Fprintf(&b, "            '%s:%s'\n", ch.word, zshText(ch.short))
			}
			b.WriteString("        )\n        _describe command choices\n        ;;\n")
			continue
		}
		b.WriteString("        _arguments -S \\\n")
		for _, ch := range c.choices {
			value := ""
			switch ch.value {
			case "":
			case "FILE":
				value = ":file:_files"
			default:
				value = ":" + strings.ToLower(ch.value) + ": "
			}
			fmt.Fprintf(&b, "            '%s[%s]%s' \\\n", ch.word, zshText(ch.short), value)
		}
		rest := "'*: : '"
		if c.files {
			rest = "'*:file:_files'"
		}
		fmt.Fprintf(&b, "            %s\n        ;;\n", rest)
	}
	b.WriteString(`    esac
}
if [ "$funcstack[1]" = _patchlog ]; then
    _patchlog "$@"
else
    compdef _patchlog patchlog
fi`)
	return b.String()
}

// zshText returns a text for single quotes, without what means something in zsh's
// descriptions.
func zshText(text string) string {
	return strings.NewReplacer("'", "’", `\`, "", ":", "", "[", "(", "]", ")").Replace(text)
}

// fishText returns a text for single quotes.
func fishText(text string) string {
	return strings.NewReplacer("'", `\'`, `\`, `\\`).Replace(text)
}

func fishCompletion(tree []completion) string {
	var b strings.Builder
	b.WriteString("# fish completion for patchlog\n")
	for _, c := range tree {
		condition := "__fish_use_subcommand"
		if c.words != "" {
			var seen []string
			for word := range strings.FieldsSeq(c.words) {
				seen = append(seen, "__fish_seen_subcommand_from "+word)
			}
			condition = strings.Join(seen, "; and ")
			if !c.flags {
				condition += "; and not __fish_seen_subcommand_from " + c.list()
			}
		}
		if c.flags && !c.files {
			fmt.Fprintf(&b, "complete -c patchlog -f -n '%s'\n", condition)
		}
		for _, ch := range c.choices {
			if !c.flags {
				fmt.Fprintf(&b, "complete -c patchlog -f -n '%s' -a %s -d '%s'\n", condition, ch.word, fishText(ch.short))
				continue
			}
			fmt.Fprintf(&b, "complete -c patchlog -n '%s' -l %s -d '%s'", condition, strings.TrimPrefix(ch.word, "--"), fishText(ch.short))
			switch ch.value {
			case "":
			case "FILE":
				b.WriteString(" -r -F")
			default:
				b.WriteString(" -x")
			}
			b.WriteByte('\n')
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
