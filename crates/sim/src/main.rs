//! Runs seeds and says how it went.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::ops::Range;
use std::process::ExitCode;

use railpost_sim::{Options, PlantedDefect, Report, Violation, run, run_all};

const HELP: &str = "\
A seeded world of crashes, lost answers and slow receivers around the real engine.

  railpost-sim --seeds 1000             run the seeds 0 to 999
  railpost-sim --seeds 1000 --first 50  run the seeds 50 to 1049
  railpost-sim --seed 7                 run one seed
  railpost-sim --seed 7 --trace         and print what happens
  railpost-sim --seeds 200 --plant NAME run with a planted defect, which must be caught

Exits with 0 if every promise was kept, with 1 if one was broken, with 2 if it was misused.

Planted defects:
";

/// What was asked for.
struct Args {
    seeds: Range<u64>,
    options: Options,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Some(args)) if args.options.trace => run_one(&args),
        Ok(Some(args)) => run_many(&args),
        Ok(None) => {
            print!("{HELP}");
            PlantedDefect::ALL.iter().for_each(|(name, _)| println!("  {name}"));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}; --help says what there is");
            ExitCode::from(2)
        }
    }
}

/// Reads the arguments; nothing when help is wanted.
fn parse(mut given: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let (mut one, mut count, mut first) = (None, None, None);
    let mut options = Options::default();
    while let Some(arg) = given.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seeds" => count = Some(number(&arg, given.next())?),
            "--first" => first = Some(number(&arg, given.next())?),
            "--seed" => one = Some(number(&arg, given.next())?),
            "--trace" => options.trace = true,
            "--plant" => options.plant = plant(given.next())?,
            unknown => return Err(format!("unknown argument `{unknown}`")),
        }
    }
    let seeds = match (one, count, first) {
        (Some(seed), None, None) => seed..seed.saturating_add(1),
        (None, Some(0), _) => return Err("`--seeds 0` would prove nothing".to_owned()),
        (None, Some(_), _) if options.trace => {
            return Err("`--trace` goes with `--seed`".to_owned());
        }
        (None, Some(count), first) => {
            let first = first.unwrap_or(0);
            first..first.saturating_add(count)
        }
        (None, None, _) => return Err("either `--seeds` or `--seed` is needed".to_owned()),
        (Some(_), _, _) => {
            return Err("`--seed` goes with neither `--seeds` nor `--first`".to_owned());
        }
    };
    Ok(Some(Args { seeds, options }))
}

fn number(arg: &str, value: Option<String>) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("`{arg}` needs a number"))?;
    value.parse().map_err(|_| format!("`{arg}` needs a number, not `{value}`"))
}

fn plant(value: Option<String>) -> Result<PlantedDefect, String> {
    let name = value.ok_or("`--plant` needs the name of a defect")?;
    let found = PlantedDefect::ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, plant)| *plant).ok_or_else(|| format!("there is no planted defect `{name}`"))
}

fn run_one(args: &Args) -> ExitCode {
    let report = run(args.seeds.start, args.options);
    print!("{}", report.trace);
    conclude(std::slice::from_ref(&report), args)
}

fn run_many(args: &Args) -> ExitCode {
    let (mut done, mut broken) = (0, 0);
    let count = args.seeds.end - args.seeds.start;
    let summary = run_all(args.seeds.clone(), args.options, |report| {
        done += 1;
        broken += u64::from(report.breach.is_some());
        if done % 50 == 0 || done == count {
            eprint!("\r{done} of {count} seeds, {broken} broken");
        }
    });
    eprintln!();
    print!("{summary}");
    conclude(&summary.broken, args)
}

/// Tells of broken promises and how to see them again.
fn conclude(reports: &[Report], args: &Args) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for Report { seed, breach, .. } in reports {
        let Some(Violation { promise, after }) = breach else { continue };
        let name = PlantedDefect::ALL.iter().find(|(_, plant)| *plant == args.options.plant);
        let plant = name.map_or(String::new(), |(name, _)| format!(" --plant {name}"));
        println!("seed {seed} broke a promise: {promise}");
        println!("  after {after}");
        println!("  see: cargo run --release -p railpost-sim -- --seed {seed} --trace{plant}");
        code = ExitCode::FAILURE;
    }
    code
}
