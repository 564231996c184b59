//! `railpost schedule`: prints the planned attempts of a retry policy.

use railpost_engine::Plan;
use serde_json::Value;

use super::Session;
use super::failure::{Failure, Outcome};
use super::list::with_query;
use super::out::Out;
use super::policy::PolicyFlags;

/// The arguments of `schedule`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The policy of this endpoint, from the server; without it, what the flags say
    endpoint: Option<String>,
    /// How many attempts to print
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    attempts: u32,
    #[command(flatten)]
    policy: PolicyFlags,
}

pub(super) fn run(
    arguments: &Arguments,
    out: Out,
    session: &dyn Fn() -> Outcome<Session>,
) -> Outcome {
    if let Some(endpoint) = &arguments.endpoint {
        if arguments.policy.any_given() {
            return Err(Failure::usage("give an endpoint or a policy, not both"));
        }
        return of_endpoint(&session()?, endpoint, arguments.attempts);
    }
    let policy = arguments.policy.to_policy()?;
    print(out, &policy.retry.plan(arguments.attempts as usize))
}

/// Prints what an endpoint's policy plans.
pub(super) fn of_endpoint(session: &Session, endpoint: &str, attempts: u32) -> Outcome {
    let url = session.client.of_tenant(&["endpoints", endpoint, "schedule"]);
    let answer =
        session.client.get(&with_query(url, &[("attempts", &Some(attempts.to_string()))]))?;
    let plan = serde_json::from_value(answer)
        .map_err(|error| Failure::new(format!("the answer has no schedule: {error}")))?;
    print(session.out, &plan)
}

fn print(out: Out, plan: &Plan) -> Outcome {
    if out.json {
        return out.value(&serde_json::to_value(plan).unwrap_or(Value::Null));
    }
    out.bytes(plan.to_string().as_bytes())
}
