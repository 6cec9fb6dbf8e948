// Package testsuite has no code of its own: its tests run the whole product on
// real servers, and replay the recorded histories in histories/.
package testsuite
