// Command build compiles the CUDA sources of a folder, by default kernels and its sub-folders, into images with NVRTC, NVIDIA's compiler library: no
// nvcc, no gcc, no cgo. It needs Linux and a folder with the compiler in it, which -fetch downloads. The same sources and the same compiler make the
// same bytes, so that only changed sources are compiled.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/internal/command"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

func main() {
	b := builder{log: os.Stderr}
	flag.StringVar(&b.dir, "dir", "kernels", "folder with the sources")
	flag.StringVar(&b.headers, "headers", "", "another folder whose headers the sources include, such as kernels")
	flag.StringVar(&b.out, "out", "", "folder for the images, such as an ignored one while tuning; images in the folder of the sources if empty")
	flag.StringVar(&b.toolkit, "toolkit", ".toolkit", "folder that the toolkit's wheels were unpacked into")
	flag.StringVar(&b.only, "only", "", "compile the source with this stem, for development")
	targets := flag.String("targets", strings.Join(manifest.Targets, ","), "what to compile for: some of these, ptx among them, in this order; a device without an image of its own runs that of its major version, or PTX")
	flag.BoolVar(&b.all, "all", false, "compile everything, also sources that have not changed")
	flag.IntVar(&b.workers, "j", 2, "compile that many images at a time, each in a process of its own")
	check := flag.Bool("check", false, "write nothing: compare sources and images with the manifest, compile images again for as long as -for allows, and exit with 1 and the names of those that differ")
	limit := flag.Duration("for", time.Minute, "how long -check goes on to compile, in an order drawn at random; -all sets no limit")
	since := flag.String("since", "", "let -check begin with the sources whose images are not those of this git revision")
	get := flag.Bool("fetch", false, "download the compiler into the folder of -toolkit, by python3 and pip, unless it is there, and do nothing else")
	verbose := flag.Bool("v", false, "print registers, stack and spills of each kernel")
	flag.Usage = usage
	flag.Parse()
	if b.out == "" {
		b.out = filepath.Join(b.dir, "images")
	}
	b.compile = b.startCompiler
	b.targets = strings.Split(*targets, ",")

	var err error
	switch args := flag.Args(); {
	case len(args) == 3 && args[0] == "compile":
		err = b.compileInput(args[1], args[2])
	case len(args) > 0:
		err = command.NoArguments()
	case !manifest.Subset(b.targets):
		err = command.Misused("-targets is %s, want some of %s in this order, ptx among them", *targets, strings.Join(manifest.Targets, ","))
	case b.workers < 1:
		err = command.Misused("-j is %d, want at least 1", b.workers)
	case *get:
		if err = without("with -fetch, want no other flag than -toolkit", func(name string) bool { return name != "fetch" && name != "toolkit" }); err == nil {
			err = fetch(b.toolkit, b.log)
		}
	case *check:
		if err = without("with -check, which prints no kernels", func(name string) bool { return name == "v" }); err == nil {
			err = b.check(*limit, *since)
		}
	default:
		if err = without("without -check, want both", func(name string) bool { return name == "for" || name == "since" }); err == nil {
			err = b.build(*verbose)
		}
	}
	command.Exit("kernels/build", err)
}

// without returns an error if a flag is set that would be ignored. The reason follows the flag in the error.
func without(reason string, ignored func(name string) bool) (err error) {
	flag.Visit(func(f *flag.Flag) {
		if err == nil && ignored(f.Name) {
			err = command.Misused("got -%s %s", f.Name, reason)
		}
	})
	return err
}

func usage() {
	fmt.Fprintln(flag.CommandLine.Output(), `usage: build [flags]
       build [flags] compile NAME TARGET < source > image    one image; the compiler's log goes to standard error`)
	flag.PrintDefaults()
}
