package jsonlines

import (
	"encoding/json"
	"reflect"
	"testing"
)

type record struct {
	Name string         `json:"name"`
	Of   map[string]int `json:"of"`
}

func TestMarshal(t *testing.T) {
	v := struct {
		Title string   `json:"title"`
		None  []record `json:"none"`
		Rows  []record `json:"rows"`
	}{`a\"<b>`, []record{}, []record{{`{"x": [1, 2]}\`, map[string]int{"b": 2, "a": 1}}, {"", nil}}}
	for depth, want := range []string{
		`{"title": "a\\\"<b>", "none": [], "rows": [{"name": "{\"x\": [1, 2]}\\", "of": {"a": 1, "b": 2}}, {"name": "", "of": null}]}
`,
		`{
 "title": "a\\\"<b>",
 "none": [],
 "rows": [{"name": "{\"x\": [1, 2]}\\", "of": {"a": 1, "b": 2}}, {"name": "", "of": null}]
}
`,
		`{
 "title": "a\\\"<b>",
 "none": [],
 "rows": [
  {"name": "{\"x\": [1, 2]}\\", "of": {"a": 1, "b": 2}},
  {"name": "", "of": null}
 ]
}
`,
	} {
		got, err := Marshal(v, depth)
		if err != nil || string(got) != want {
			t.Errorf("depth %d: %v\n%swant\n%s", depth, err, got, want)
		}
		back := v
		back.Rows, back.None = nil, nil
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("depth %d: read back %+v, %v", depth, back, err)
		}
	}
	if text, err := Marshal(func() {}, 1); err == nil {
		t.Errorf("a function is %s, want an error", text)
	}
}
