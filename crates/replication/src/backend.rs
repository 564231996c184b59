//! The server's messages: where each begins and ends, and what it says.

use bytes::{Bytes, BytesMut};
use postgres_protocol::message::backend as tags;

use crate::cursor::{Cursor, Malformed};
use crate::{Error, ErrorKind, Lsn, ServerError};

/// PostgreSQL counts time from the beginning of 2000: so many microseconds after 1970.
pub(crate) const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// The answer to `START_REPLICATION`, which ordinary clients never see.
const COPY_BOTH_TAG: u8 = b'W';

/// A message of the server.
pub(crate) enum Backend {
    Authentication(Authentication),
    Parameter {
        name: String,
        value: String,
    },
    Row(Vec<Option<String>>),
    Error(ServerError),
    /// A warning or less.
    Notice(ServerError),
    Ready,
    CopyBoth,
    CopyData(Bytes),
    CopyDone,
    /// What nobody here has a use for: keys, descriptions, the end of a command.
    Other,
}

/// What the server wants to know of a client.
pub(crate) enum Authentication {
    Ok,
    Cleartext,
    Md5 {
        salt: [u8; 4],
    },
    Sasl {
        mechanisms: Vec<String>,
    },
    SaslContinue(Bytes),
    SaslFinal(Bytes),
    /// Kerberos and the like, by its number.
    Other(u32),
}

/// Takes the next message out of what was read, if all of it was read. A message that is too long is an error
/// before any of it is kept.
pub(crate) fn take(input: &mut BytesMut, len_max: usize) -> Result<Option<Backend>, Error> {
    let header = tags::Header::parse(input);
    let header = header.map_err(|error| Error::new(ErrorKind::Protocol, error.to_string()))?;
    let Some(header) = header else { return Ok(None) };
    let len = usize::try_from(header.len()).expect("the header's length was checked") + 1;
    if len > len_max {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("a message of {len} bytes; at most {len_max} are read"),
        ));
    }
    if input.len() < len {
        input.reserve(len - input.len());
        return Ok(None);
    }
    let body = input.split_to(len).freeze().slice(5..);
    read(header.tag(), Cursor::new(body)).map(Some).map_err(|Malformed(problem)| {
        let tag = header.tag().escape_ascii();
        Error::new(ErrorKind::Protocol, format!("invalid message `{tag}` of the server: {problem}"))
    })
}

fn read(tag: u8, mut body: Cursor) -> Result<Backend, Malformed> {
    Ok(match tag {
        tags::AUTHENTICATION_TAG => Backend::Authentication(authentication(body)?),
        tags::PARAMETER_STATUS_TAG => {
            Backend::Parameter { name: body.text()?, value: body.text()? }
        }
        tags::DATA_ROW_TAG => Backend::Row(row(body)?),
        tags::ERROR_RESPONSE_TAG => Backend::Error(error(body)?),
        tags::NOTICE_RESPONSE_TAG => Backend::Notice(error(body)?),
        tags::READY_FOR_QUERY_TAG => Backend::Ready,
        COPY_BOTH_TAG => Backend::CopyBoth,
        tags::COPY_DATA_TAG => Backend::CopyData(body.rest()),
        tags::COPY_DONE_TAG => Backend::CopyDone,
        tags::BACKEND_KEY_DATA_TAG
        | tags::ROW_DESCRIPTION_TAG
        | tags::COMMAND_COMPLETE_TAG
        | tags::EMPTY_QUERY_RESPONSE_TAG => Backend::Other,
        _ => return Err(Malformed("it is not expected here")),
    })
}

fn authentication(mut body: Cursor) -> Result<Authentication, Malformed> {
    Ok(match body.u32()? {
        0 => Authentication::Ok,
        3 => Authentication::Cleartext,
        5 => Authentication::Md5 { salt: body.u32()?.to_be_bytes() },
        10 => {
            let mut mechanisms = Vec::new();
            loop {
                match body.text()? {
                    end if end.is_empty() => break Authentication::Sasl { mechanisms },
                    mechanism => mechanisms.push(mechanism),
                }
            }
        }
        11 => Authentication::SaslContinue(body.rest()),
        12 => Authentication::SaslFinal(body.rest()),
        other => Authentication::Other(other),
    })
}

fn row(mut body: Cursor) -> Result<Vec<Option<String>>, Malformed> {
    let count = body.u16()?;
    let column = |_| {
        let Ok(len) = usize::try_from(body.i32()?) else { return Ok(None) };
        let text = String::from_utf8(body.bytes(len)?.into());
        text.map(Some).map_err(|_| Malformed("a value that is not UTF-8"))
    };
    (0..count).map(column).collect()
}

fn error(mut body: Cursor) -> Result<ServerError, Malformed> {
    let mut error = ServerError::default();
    loop {
        let field = body.u8()?;
        if field == 0 {
            return Ok(error);
        }
        let value = body.lossy_text()?;
        match field {
            b'C' => error.sqlstate = value,
            b'M' => error.message = value,
            b'D' => error.detail = Some(value),
            b'H' => error.hint = Some(value),
            _ => {}
        }
    }
}

/// What is inside of `CopyData` while a stream runs.
pub(crate) enum StreamData {
    /// A message of the output plug-in.
    Plugin(Bytes),
    /// Where the server is, and whether it wants an answer at once.
    Keepalive { server_end: Lsn, reply: bool },
}

pub(crate) fn stream_data(data: Bytes) -> Result<StreamData, Error> {
    let read = |mut body: Cursor| {
        Ok(match body.u8()? {
            b'w' => {
                // Where the message was logged, where the server is (for a plug-in's message the same), when.
                body.bytes(3 * 8)?;
                StreamData::Plugin(body.rest())
            }
            b'k' => {
                let server_end = Lsn::from_u64(body.u64()?);
                body.i64()?;
                StreamData::Keepalive { server_end, reply: body.u8()? != 0 }
            }
            _ => return Err(Malformed("it is neither data nor a keepalive")),
        })
    };
    read(Cursor::new(data)).map_err(|Malformed(problem)| {
        Error::new(ErrorKind::Protocol, format!("invalid message of the stream: {problem}"))
    })
}
