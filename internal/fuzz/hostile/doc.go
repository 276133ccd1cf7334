// Package hostile feeds malicious input to everything that reads input: bytes, text, files, command lines and
// requests. Nothing may panic or hang. Errors must have their documented types. Readers must change nothing.
// Memory must stay below 8 times the input plus 32 MiB. The package has only tests. This command runs each fuzz
// target for an hour, and saves interesting inputs for the next run:
//
//	make fuzz FUZZTIME=1h
package hostile
