//! The rules for Prometheus and the expressions of the dashboard, as Prometheus' own tool reads them.

use std::path::Path;
use std::process::Command;

use crate::machine::{ensure, run};

const TESTS: [&str; 2] = ["alerts.test.yml", "objective.test.yml"];

/// Checks the rules, runs their tests, and checks that these have each alert fire and resolve.
pub(crate) fn check(root: &Path, python: &Path, folder: &Path) -> Result<(), String> {
    ensure("promtool", "prometheus")?;
    let deploy = root.join("deploy");
    let (rules, expressions) =
        (deploy.join("prometheus/railpost.rules.yml"), folder.join("dashboard.rules.yml"));
    let mut script = Command::new(python);
    run(script.arg(deploy.join("checks/prometheus.py")).arg(&deploy).arg(&expressions))?;
    run(Command::new("promtool").args(["check", "rules"]).arg(rules).arg(expressions))?;
    let tests = TESTS.map(|test| deploy.join("prometheus/tests").join(test));
    run(Command::new("promtool").args(["test", "rules"]).args(tests))
}
