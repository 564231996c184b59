//! The beginning of a session: startup message, authentication, and what the server tells of itself.

use bytes::{Bytes, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;
use tokio_postgres::config;

use crate::backend::{Authentication, Backend};
use crate::error::Operation;
use crate::transport::Transport;
use crate::{Error, ErrorKind, Target};

/// Begins a session on a fresh connection, and returns the server's major version.
pub(crate) async fn log_in(transport: &mut Transport, target: &Target) -> Result<u32, Error> {
    transport.send(&startup_message(target)?).await?;
    let mut login = Login { target, scram: None, is_bound: false };
    while let Some(answer) = login.answer(transport).await? {
        transport.send(&answer).await?;
    }
    server_version(transport).await
}

/// Values come as text, so the settings that change how text looks are fixed. Names are looked up in no
/// schema: a user's own function must not take the place of one of PostgreSQL's.
fn startup_message(target: &Target) -> Result<BytesMut, Error> {
    let config = &target.config;
    let timeout = format!("{}ms", target.wal_sender_timeout.as_millis());
    let user = config.get_user().unwrap_or_default();
    let mut parameters = vec![
        ("user", user),
        ("database", config.get_dbname().unwrap_or(user)),
        ("replication", "database"),
        ("client_encoding", "UTF8"),
        ("application_name", config.get_application_name().unwrap_or("railpost-replication")),
        ("DateStyle", "ISO"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "UTC"),
        ("extra_float_digits", "3"),
        ("bytea_output", "hex"),
        ("standard_conforming_strings", "on"),
        ("search_path", ""),
        ("statement_timeout", "0"),
        // A stream that passes over changes is told so by a warning.
        ("client_min_messages", "warning"),
        ("wal_sender_timeout", timeout.as_str()),
    ];
    parameters.extend(config.get_options().map(|options| ("options", options)));
    let mut message = BytesMut::new();
    frontend::startup_message(parameters, &mut message)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("invalid URL: {error}")))?;
    Ok(message)
}

/// An authentication under way.
struct Login<'a> {
    target: &'a Target,
    scram: Option<ScramSha256>,
    /// Whether the server proved that it has the certificate that TLS showed.
    is_bound: bool,
}

impl Login<'_> {
    /// What to say to the server's next question; nothing once it is content.
    async fn answer(&mut self, transport: &mut Transport) -> Result<Option<BytesMut>, Error> {
        let question = match transport.receive().await? {
            Backend::Authentication(question) => question,
            Backend::Error(error) => return Err(Error::of_server(Operation::Login, error)),
            Backend::Notice(_) => return Ok(Some(BytesMut::new())),
            _ => return Err(refused("the server answers out of turn")),
        };
        match question {
            Authentication::Ok => self.end().map(|()| None),
            Authentication::Cleartext if transport.is_private => password_message(self.password()?),
            Authentication::Cleartext => Err(refused(
                "the server asks for the password in clear text on a connection without TLS",
            )),
            Authentication::Md5 { salt } => {
                let user = self.target.config.get_user().unwrap_or_default();
                password_message(md5_hash(user.as_bytes(), self.password()?, salt).as_bytes())
            }
            Authentication::Sasl { mechanisms } => {
                self.start_scram(&mechanisms, transport.channel_binding.clone())
            }
            Authentication::SaslContinue(challenge) => self.continue_scram(&challenge),
            Authentication::SaslFinal(proof) => self.finish_scram(&proof),
            Authentication::Other(number) => {
                Err(refused(format!("the server asks for authentication method {number}")))
            }
        }
    }

    fn password(&self) -> Result<&[u8], Error> {
        let password = self.target.config.get_password();
        password.ok_or_else(|| refused("the server asks for a password, and there is none"))
    }

    fn end(&self) -> Result<(), Error> {
        if self.scram.is_some() {
            return Err(refused("the server did not prove that it knows the password"));
        }
        let required = self.target.config.get_channel_binding() == config::ChannelBinding::Require;
        if required && !self.is_bound {
            return Err(refused("`channel_binding=require`, and the server does without"));
        }
        Ok(())
    }

    fn start_scram(
        &mut self,
        mechanisms: &[String],
        end_point: Option<Vec<u8>>,
    ) -> Result<Option<BytesMut>, Error> {
        let offers = |name: &str| mechanisms.iter().any(|mechanism| mechanism == name);
        let disabled = self.target.config.get_channel_binding() == config::ChannelBinding::Disable;
        let end_point = end_point.filter(|_| !disabled);
        let (mechanism, binding) = match end_point {
            Some(end_point) if offers(SCRAM_SHA_256_PLUS) => {
                self.is_bound = true;
                (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(end_point))
            }
            // This tells the server that its offer did not arrive, if it made one.
            Some(_) if offers(SCRAM_SHA_256) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            None if offers(SCRAM_SHA_256) => (SCRAM_SHA_256, ChannelBinding::unsupported()),
            _ => {
                let offered = mechanisms.join(", ");
                return Err(refused(format!("the server offers {offered}, not {SCRAM_SHA_256}")));
            }
        };
        let scram = ScramSha256::new(self.password()?, binding);
        let scram = self.scram.insert(scram);
        let mut message = BytesMut::new();
        let written = frontend::sasl_initial_response(mechanism, scram.message(), &mut message);
        written.map_err(|error| refused(error.to_string())).map(|()| Some(message))
    }

    fn continue_scram(&mut self, challenge: &Bytes) -> Result<Option<BytesMut>, Error> {
        let scram = self.scram.as_mut().ok_or_else(|| refused("the server answers out of turn"))?;
        let mut message = BytesMut::new();
        let written = scram
            .update(challenge)
            .and_then(|()| frontend::sasl_response(scram.message(), &mut message));
        written.map_err(|error| refused(format!("SCRAM: {error}"))).map(|()| Some(message))
    }

    fn finish_scram(&mut self, proof: &Bytes) -> Result<Option<BytesMut>, Error> {
        let scram = self.scram.take();
        let mut scram = scram.ok_or_else(|| refused("the server answers out of turn"))?;
        let finished = scram.finish(proof);
        finished.map_err(|error| refused(format!("SCRAM: {error}")))?;
        Ok(Some(BytesMut::new()))
    }
}

fn refused(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Authentication, problem)
}

fn password_message(password: &[u8]) -> Result<Option<BytesMut>, Error> {
    let mut message = BytesMut::new();
    let written = frontend::password_message(password, &mut message);
    written.map_err(|error| refused(error.to_string())).map(|()| Some(message))
}

/// Waits until the session is ready. The server tells its version on the way, such as `17.2 (Debian …)`.
async fn server_version(transport: &mut Transport) -> Result<u32, Error> {
    let mut version = None;
    loop {
        match transport.receive().await? {
            Backend::Parameter { name, value } if name == "server_version" => {
                let end = value.find(|character: char| !character.is_ascii_digit());
                version = value[..end.unwrap_or(value.len())].parse().ok();
            }
            Backend::Error(error) => return Err(Error::of_server(Operation::Login, error)),
            Backend::Ready => break,
            _ => {}
        }
    }
    version.ok_or_else(|| Error::new(ErrorKind::Protocol, "the server does not tell its version"))
}
