/** Times by RFC 3339. */

import { TIME_LEN_MAX } from "./limits.js";

const FORM = /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-](\d\d):(\d\d))$/;

/** Whether a text is a time that exists. */
export function isTime(text: string): boolean {
  if (text.length > TIME_LEN_MAX) return false;
  const parts = FORM.exec(text)
    ?.slice(1)
    .map((part) => Number(part ?? 0));
  if (parts === undefined) return false;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, offHour = 0, offMinute = 0] = parts;
  const inDay = hour <= 23 && minute <= 59 && second <= 59 && offHour <= 23 && offMinute <= 59;
  return inDay && month >= 1 && month <= 12 && day >= 1 && day <= daysOf(year, month);
}

function daysOf(year: number, month: number): number {
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  return [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1] ?? 0;
}
