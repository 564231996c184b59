//! `railpost endpoints probe` and `resume`: finding out whether an endpoint answers, and going on with it.

use serde_json::{Value, json};

use super::Session;
use super::attempts::{self, answer, took};
use super::confirm;
use super::failure::{Failure, Outcome};
use super::health;
use super::out::{NOT_ACKNOWLEDGED, field};

/// Sends one request to an endpoint, whatever its state is, and says what came back.
pub(super) fn probe(session: &Session, id: &str, and_resume: bool) -> Outcome {
    let (client, out) = (&session.client, session.out);
    out.progress("waiting for the answer …");
    let probed = client.act(&client.of_tenant(&["endpoints", id, "probe"]));
    out.progress_done();
    let probed = probed?;
    let succeeded = probed["succeeded"] == true;
    if !out.json {
        tell(session, &probed)?;
    }
    if !succeeded {
        if out.json {
            out.value(&probed)?;
        }
        return Err(Failure::new(format!("{id} does not take what is sent")).next(format!(
            "fix the receiver and probe again; `railpost endpoints show {id}` shows its health"
        )));
    }
    let resumed = if wants_resume(session, id, &probed, and_resume)? {
        Some(client.act(&client.of_tenant(&["endpoints", id, "resume"]))?)
    } else {
        None
    };
    if out.json {
        let resumed = resumed.map_or(Value::Null, |answer| answer["resumed"].clone());
        let mut probed = probed;
        probed["resumed"] = resumed;
        return out.value(&probed);
    }
    resumed.map_or(Ok(()), |resumed| tell_resumed(session, &resumed))
}

fn tell(session: &Session, probed: &Value) -> Outcome {
    let out = session.out;
    let total = took(&probed["timing"]["total_us"]);
    let verdict = match probed["succeeded"] == true {
        true => "acknowledged",
        false => NOT_ACKNOWLEDGED,
    };
    out.line(&out.painted(&format!("{} in {total}: {verdict}", answer(probed))))?;
    for line in attempts::below(probed) {
        out.wrapped(&line, 4).iter().try_for_each(|line| out.line(line))?;
    }
    out.line(&format!("health: {}", health::cell(probed)))?;
    if let Some(next) = health::next(&probed["health"]) {
        out.hint(&next);
    }
    if let Some(advice) = probed["advice"].as_str() {
        out.hint(&health::with_relative_times(advice));
    }
    Ok(())
}

/// Whether the endpoint is to be resumed: if something keeps deliveries from it, and that is wanted.
fn wants_resume(session: &Session, id: &str, probed: &Value, and_resume: bool) -> Outcome<bool> {
    if probed["health"]["state"] == "active" {
        return Ok(false);
    }
    if and_resume {
        return Ok(true);
    }
    if confirm::can_ask(session.out) {
        return confirm::ask("Resume it?");
    }
    session.out.hint(&format!("To resume it: railpost endpoints resume {id}"));
    Ok(false)
}

/// Sends to an endpoint again.
pub(super) fn resume(session: &Session, id: &str) -> Outcome {
    let url = session.client.of_tenant(&["endpoints", id, "resume"]);
    let resumed = session.client.act(&url)?;
    if session.out.json {
        return session.out.value(&resumed);
    }
    tell_resumed(session, &resumed)
}

fn tell_resumed(session: &Session, resumed: &Value) -> Outcome {
    session.out.done(&json!({ "resumed": resumed["resumed"] }), &resumed_line(resumed))
}

/// What a resume did.
fn resumed_line(resumed: &Value) -> String {
    let id = field(resumed, "id");
    match resumed["resumed"].as_str() {
        Some("switched_on") => format!(
            "{id} is switched on: what waits is sent; dead letters stay: `railpost replay --endpoint {id}` sends them again"
        ),
        Some("half_open") => format!(
            "the breaker of {id} is half-open: one delivery goes at once; if it is acknowledged, sending goes on"
        ),
        Some("retry_after_lifted") => {
            format!(
                "{id} is not left alone any longer: sending goes on before its Retry-After has passed"
            )
        }
        _ => format!(
            "nothing to do: there is nothing to resume; `railpost endpoints health {id}` shows the state"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(resumed: &str) -> String {
        resumed_line(&json!({ "id": "ep_1", "status": "active", "resumed": resumed }))
    }

    #[test]
    fn a_resume_that_had_nothing_to_do_claims_no_state() {
        let line = line("nothing_to_do");
        assert!(
            line.starts_with("nothing to do: ") && line.contains("endpoints health ep_1"),
            "{line}"
        );
        assert!(!line.contains("active"), "{line}");
    }

    #[test]
    fn switching_on_says_that_dead_letters_stay_and_what_sends_them() {
        let line = line("switched_on");
        assert!(line.contains("dead letters stay"), "{line}");
        assert!(line.contains("`railpost replay --endpoint ep_1`"), "{line}");
    }
}
