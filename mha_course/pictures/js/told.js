// How numbers are told: rounded, and the largest of them chosen after that, so that no last bit decides what is said.

/** Rounded to `digits`, a half away from 0, but to three digits more first: no last bit rounds 0.125. */
export const rounded = (value, digits) =>
  Math.sign(value) * Math.floor(Math.round(10 ** (digits + 3) * Math.abs(value)) / 1000 + 0.5) / 10 ** digits;

/** The place of the number that is largest as it is told with `digits`; the first of equal ones, 0 where there is none. */
export function firstLargest(numbers, digits) {
  const told = Array.from(numbers, (value) => rounded(value, digits));
  return Math.max(told.indexOf(Math.max(...told)), 0);
}
