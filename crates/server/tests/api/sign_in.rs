//! Signing in to the dashboard without a browser.

use crate::world::{Answer, World};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// Signs in with this key and answers what came back.
pub(crate) fn sign_in(world: &World, key: &str) -> Answer {
    send_form(world, &format!("key={key}"), &[])
}

/// Sends the sign-in form with these headers and answers what came back, without following it anywhere.
pub(crate) fn send_form(world: &World, form: &str, headers: &[(&str, &str)]) -> Answer {
    let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
    let agent: ureq::Agent = config.build().into();
    let mut request = agent.post(world.url("/dashboard/sign-in")).header(FORM.0, FORM.1);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.send(form).unwrap();
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        text: response.body_mut().read_to_string().unwrap(),
    }
}

/// The session's cookie of a sign-in that went well.
pub(crate) fn cookie(signed_in: &Answer) -> String {
    let header = signed_in.headers["set-cookie"].to_str().unwrap();
    header.split(';').next().unwrap().to_owned()
}

/// The cookie of an admin who has signed in.
pub(crate) fn signed_in(world: &World) -> String {
    cookie(&sign_in(world, &world.admin))
}
