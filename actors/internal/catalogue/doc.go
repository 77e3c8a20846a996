// Package catalogue turns what servers list into what the bridge offers: local
// names, digests, one sorted list, and an exact account of the difference.
//
// # Contract
//
// Everything here is a pure function of its arguments. A tool's names depend on
// its server's name and its own, and on nothing else (requirement C2): servers may
// come and go, tools be added and removed, and no other tool is renamed by it.
// Nothing is left out in silence: for every tool that a server listed and the
// catalogue does not offer there is an issue that says why (requirement B5).
package catalogue
