package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pack puts the binaries, the files that they read and a script that runs them on a GPU
// into a folder. The script's first argument is the folder for their results, which
// conformance -read takes. It runs the suites side by side, and needs Python with numpy; then,
// one after the other, it times those that are timed. A second argument, check or time, selects
// one of the two.
func pack(suites []suite, tree, to string) error {
	var script, timing strings.Builder
	script.WriteString("#!/bin/bash\nout=$1/log; mkdir -p $out; here=$PWD\nexport STHENO_REQUIRE_GPU=1\n")
	script.WriteString("numbers() { mkdir -p $(dirname $1); python3 -c \"import numpy as n; (n.abs(n.random.default_rng(1).standard_normal($2 // 4)) / 20).astype('f4').tofile('$1')\"; }\n")
	script.WriteString("check() {\n")
	timing.WriteString("time_() {\n")
	for _, s := range suites {
		folder := filepath.Join(to, filepath.FromSlash(s.dir))
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return err
		}
		for _, f := range s.files {
			if err := copyAll(filepath.Join(tree, filepath.FromSlash(s.dir), f), filepath.Join(folder, f)); err != nil {
				return err
			}
		}
		name, binary := fileName(s.name), filepath.Base(s.binary(tree))
		if err := copyAll(s.binary(tree), filepath.Join(to, "bin", binary)); err != nil {
			return err
		}
		fmt.Fprintf(&script, "(cd %s\n", s.dir)
		for _, f := range slices.Sorted(maps.Keys(s.weights)) {
			fmt.Fprintf(&script, " numbers %s %d\n", f, s.weights[f])
		}
		for _, mode := range s.modes() {
			log, to := "$out/"+name+"-"+mode, &script
			if slices.Contains(timedModes, mode) {
				to = &timing
				fmt.Fprintf(to, " cd $here/%s\n", s.dir)
			}
			fmt.Fprintf(to, " env %s timeout 200 $here/bin/%s %s > %s.log 2>&1; echo $? > %s.exit\n",
				strings.Join(s.environment(mode, log+".jsonl"), " "), binary, strings.Join(append(s.arguments(), s.without...), " "), log, log)
		}
		script.WriteString(") &\n")
	}
	script.WriteString("wait\n}\n" + timing.String() + "}\n")
	script.WriteString("[ \"${2:-check}\" = check ] && check\n[ \"${2:-time}\" = time ] && time_\n")
	script.WriteString("grep -c . $out/*.jsonl; tail -n 1 $out/*.exit | grep -v '^$'\n")
	if err := digits(filepath.Join(to, "gorgonia", "examples", "testdata", "mnist")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "run.sh"), []byte(script.String()), 0o777)
}

// withoutImages returns an overlay for builds that embed only the images of a target and the
// portable images.
func withoutImages(tree, root, target string) (overlay string, err error) {
	var images []string
	for _, kind := range []string{"images/*.cubin.zst", "versions/images/*.cubin.zst", "prebuilt/*.archive"} {
		files, err := filepath.Glob(filepath.Join(root, "kernels", filepath.FromSlash(kind)))
		if err != nil {
			return "", err
		}
		images = append(images, files...)
	}
	nothing, err := filepath.Abs(filepath.Join(tree, "nothing"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(nothing, nil, 0o666); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, name := range images {
		if base := "." + filepath.Base(name); !strings.Contains(base, "."+target+".") {
			replace[name] = nothing
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(filepath.Dir(nothing), "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o666)
}

// copyAll copies a file, or a folder with all that is in it.
func copyAll(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode())
}
